"""The application behind the page: it shows, and changes nothing.

Airflow does not protect what plugins serve, so every request here depends on Airflow's own login,
and whatever is about a training on the right to read its DAG. Stopping a training is a request of
the browser to Airflow's own REST API, with the user's own rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, get_user, requires_access_dag
from airflow.models.dag import DagModel
from fastapi import Depends, FastAPI, HTTPException, Query, Request, status
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from airflow_learner_provider.exceptions import LearnerError
from airflow_learner_provider.training.progress import ProgressCurve
from airflow_learner_provider.training.view import build_detail, build_summary, read_task
from airflow_learner_provider.ui.reader import Reader

_STATIC = Path(__file__).parent / "static"
# The page loads nothing from elsewhere, and only Airflow may frame it.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'self'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
}
_READ_SECONDS = 25
_MOST_LINES = 1000

Text = Annotated[str, Query(max_length=250)]


def _read_task_query(
    dag_id: Text, run_id: Text, task_id: Text, map_index: int = -1
) -> dict[str, str]:
    return {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": str(map_index)}


TaskQuery = Annotated[dict[str, str], Depends(_read_task_query)]


def build_app() -> FastAPI:
    """Build the application."""
    reader = Reader()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await reader.close()

    app = FastAPI(
        title="Trainings",
        lifespan=lifespan,
        dependencies=[Depends(get_user)],
        openapi_url=None,
    )
    app.state.reader = reader
    # Login is not asked for: these files say nothing about any training.
    app.mount("/static", StaticFiles(directory=_STATIC))
    app.add_exception_handler(status.HTTP_401_UNAUTHORIZED, _send_to_login)
    app.add_exception_handler(LearnerError, _tell_error)
    app.add_exception_handler(TimeoutError, _tell_error)
    app.get("/")(show_trainings)
    app.get("/training")(show_training)
    app.get("/api/trainings", dependencies=[Depends(requires_access_dag("GET"))])(list_trainings)
    app.get(
        "/api/training",
        dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE))],
    )(read_training)
    app.get(
        "/api/log",
        dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))],
    )(read_log)
    return app


def show_trainings() -> FileResponse:
    """The list's page."""
    return FileResponse(_STATIC / "trainings.html", headers=_HEADERS)


def show_training() -> FileResponse:
    """One training's page."""
    return FileResponse(_STATIC / "training.html", headers=_HEADERS)


async def list_trainings(
    *,
    request: Request,
    user: GetUserDep,
    search: Text = "",
    phase: Text = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> dict[str, Any]:
    """List the trainings of the DAGs that the user may read, the newest first."""
    allowed = await asyncio.to_thread(_list_readable_dags, user)
    async with asyncio.timeout(_READ_SECONDS):
        snapshots = await _reader(request).read_all()

    def select() -> list[dict[str, Any]]:
        rows = [
            build_summary(observation, namespace=snapshot.namespace)
            for snapshot in snapshots
            for observation in snapshot.trainings.values()
            if read_task(observation)["dag_id"] in allowed
        ]
        rows.sort(key=lambda row: (row["created"] or "", row["name"]), reverse=True)
        return [row for row in rows if search in _searchable(row)]

    rows = await asyncio.to_thread(select)
    phases = {row["phase"]: 0 for row in rows}
    for row in rows:
        phases[row["phase"]] += 1
    chosen = [row for row in rows if phase in {"", row["phase"]}]
    return {
        "trainings": chosen[offset : offset + limit],
        "total": len(chosen),
        "phases": phases,
        "namespaces": [snapshot.namespace for snapshot in snapshots],
    }


async def read_training(request: Request, user: GetUserDep, task: TaskQuery) -> dict[str, Any]:
    """Read the training of a task instance; None when there is none in the cluster."""
    may_stop = await asyncio.to_thread(_may_stop, user, task["dag_id"])
    reader = _reader(request)
    async with asyncio.timeout(_READ_SECONDS):
        found = await reader.find(task)
        if found is None:
            return {"training": None, "may_stop": may_stop}
        snapshot, observation = found
        usage = await reader.read_usage(snapshot.namespace, observation.name)
    detail = build_detail(observation, namespace=snapshot.namespace, events=snapshot.events)
    return {"training": detail, "usage": usage, "may_stop": may_stop}


async def read_log(
    request: Request,
    task: TaskQuery,
    ordinal: Annotated[int, Query(ge=0)] = 0,
    lines: Annotated[int, Query(ge=1, le=_MOST_LINES)] = 100,
) -> dict[str, Any]:
    """Read the last lines of a learner's log, and how far the training is by them."""
    reader = _reader(request)
    async with asyncio.timeout(_READ_SECONDS):
        found = await reader.find(task)
        if found is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, "There is no such training any more")
        snapshot, observation = found
        text = await reader.read_log(snapshot.namespace, observation, ordinal, lines=_MOST_LINES)
    return {"lines": text[-lines:], "curve": ProgressCurve.of_lines(text).to_rows()}


def _reader(request: Request) -> Reader:
    reader: Reader = request.app.state.reader
    return reader


def _searchable(row: dict[str, Any]) -> str:
    return " ".join(str(row[key]) for key in ("name", "dag_id", "run_id", "task_id", "reason"))


def _list_readable_dags(user: Any) -> set[str]:
    readable: set[str] = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return readable


def _may_stop(user: Any, dag_id: str) -> bool:
    """Tell whether Airflow would let the user mark a task of the DAG as failed."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    allowed: bool = get_auth_manager().is_authorized_dag(
        method="PUT", access_entity=DagAccessEntity.TASK_INSTANCE, details=details, user=user
    )
    return allowed


def _send_to_login(request: Request, error: Exception) -> Response:
    """Let people log in; programs, and the page's own requests, are told."""
    if "text/html" in request.headers.get("accept", ""):
        url = get_auth_manager().get_url_login(next_url=str(request.url))
        return RedirectResponse(url, status.HTTP_303_SEE_OTHER)
    return JSONResponse({"detail": "Log in to Airflow"}, status.HTTP_401_UNAUTHORIZED)


def _tell_error(_: Request, error: Exception) -> JSONResponse:
    said = str(error) or "The cluster does not answer in time"
    return JSONResponse({"detail": said}, status.HTTP_502_BAD_GATEWAY)
