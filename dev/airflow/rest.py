"""A small client of Airflow's REST API, as people and programs outside use it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from urllib.parse import quote

import httpx

from dev.airflow.settings import AirflowError

Json = dict[str, Any]

ENDED_RUN = frozenset({"success", "failed"})
ENDED_TASK = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
POLL_SECONDS = 0.2


class Api:
    """Requests with a token; an answer that is an error is raised with its text.

    :param user: who asks, with the name as the password; None where nobody has to log in.
    """

    def __init__(self, url: str, user: str | None = None) -> None:
        self.url = url
        self._user = user
        self._http = httpx.Client(base_url=url, timeout=120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(self, method: str, path: str, **arguments: Any) -> Any:
        """Send a request to a path below `/api/v2` and return the JSON of the answer.

        :raises AirflowError: the answer is an error.
        """
        answer = self.send(method, path, **arguments)
        if answer.is_error:
            raise AirflowError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Send a request and return the answer, whatever it is."""
        return self.send_to(method, f"/api/v2{path}", **arguments)

    def send_to(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Send a request to any path of the server, such as a plugin's."""
        if "Authorization" not in self._http.headers:
            self._http.headers["Authorization"] = f"Bearer {self.read_token()}"
        return self._http.request(method, path, **arguments)

    def read_token(self) -> str:
        """Log in, and return the token that says who asks."""
        if self._user is None:
            answer = self._http.get("/auth/token")
        else:
            login = {"username": self._user, "password": self._user}
            answer = self._http.post("/auth/token", json=login)
        token: str = answer.raise_for_status().json()["access_token"]
        return token

    def is_up(self) -> bool:
        """Whether the API server answers."""
        try:
            return self._http.get("/api/v2/version").is_success
        except httpx.TransportError:
            return False

    def list_jobs(self, job_type: str) -> list[Json]:
        """List the components of a kind that say they are running, the newest first."""
        query = {"job_type": job_type, "job_state": "running", "order_by": "-start_date"}
        return list(self.request("GET", "/jobs", params=query)["jobs"])

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> Run:
        """Start a run of a DAG now.

        :param conf: values for the DAG's params.
        """
        body = {"logical_date": None, "conf": dict(conf or {})}
        run = self.request("POST", f"/dags/{dag_id}/dagRuns", json=body)
        return Run(self, dag_id, run["dag_run_id"])

    def list_runs(self, dag_id: str) -> list[Run]:
        """List the runs of a DAG, the newest first."""
        answer = self.request("GET", f"/dags/{dag_id}/dagRuns", params={"order_by": "-run_after"})
        return [Run(self, dag_id, run["dag_run_id"]) for run in answer["dag_runs"]]

    def read_dag(self, dag_id: str) -> Json | None:
        """Return a DAG; None while there is none of that id, or only one whose file is gone."""
        answer = self.send("GET", f"/dags/{dag_id}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        dag: Json = answer.raise_for_status().json()
        return None if dag["is_stale"] else dag

    def delete_dag(self, dag_id: str) -> None:
        """Delete what Airflow knows of a DAG; its file stays."""
        self.request("DELETE", f"/dags/{dag_id}")

    def pause(self, dag_id: str) -> None:
        """Let a DAG start nothing new."""
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": True})

    def unpause(self, dag_id: str) -> None:
        """Let a DAG run."""
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": False})

    def list_import_errors(self, *, since: float) -> dict[str, str]:
        """Return why DAG files could not be read, by their names.

        :param since: Unix time in seconds; what was found before it is passed over.
        """
        errors = self.request("GET", "/importErrors", params={"limit": 100})["import_errors"]
        return {
            error["filename"]: error["stack_trace"]
            for error in errors
            if datetime.fromisoformat(error["timestamp"]).timestamp() >= since
        }

    def list_asset_events(self, run: Run) -> list[Json]:
        """List what a run told about assets."""
        query = {"source_dag_id": run.dag_id, "source_run_id": run.run_id}
        return list(self.request("GET", "/assets/events", params=query)["asset_events"])

    def set_connection(self, connection: Json) -> None:
        """Add a connection, or put it in the place of the one with its `connection_id`."""
        name = connection["connection_id"]
        if self.send("GET", f"/connections/{name}").is_success:
            self.request("PATCH", f"/connections/{name}", json=connection)
        else:
            self.request("POST", "/connections", json=connection)

    def set_variable(self, key: str, value: str) -> None:
        """Add a Variable, or give it another value."""
        self.send("DELETE", f"/variables/{key}")
        self.request("POST", "/variables", json={"key": key, "value": value})


@dataclass(frozen=True)
class Run:
    """A run of a DAG."""

    api: Api
    dag_id: str
    run_id: str

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"/dags/{self.dag_id}/dagRuns/{quote(self.run_id)}"

    @property
    def page(self) -> str:
        """Where people find it in the user interface."""
        return f"{self.api.url}/dags/{self.dag_id}/runs/{quote(self.run_id)}"

    def read_state(self) -> str:
        """Return its state."""
        return str(self.api.request("GET", self.path)["state"])

    def list_tasks(self) -> list[Task]:
        """List its task instances, those of mapped tasks one by one."""
        return [Task(self, task["task_id"], task["map_index"]) for task in self.list_instances()]

    def list_instances(self) -> list[Json]:
        """List all that the API tells of each of its task instances."""
        found: list[Json] = []
        while True:
            query = {"limit": 100, "offset": len(found), "order_by": "id"}
            page = self.api.request("GET", f"{self.path}/taskInstances", params=query)
            found += page["task_instances"]
            if not page["task_instances"] or len(found) >= page["total_entries"]:
                return found

    def task(self, task_id: str, map_index: int = -1) -> Task:
        """Return a task instance; whether there is one is not asked."""
        return Task(self, task_id, map_index)

    def wait_for(self, *states: str, timeout: float = 300) -> str:
        """Wait until it is in one of these states.

        :raises AirflowError: it ended in another one, or the time is up; with the tasks' logs.
        """
        return _wait_for(
            self.read_state, states, ENDED_RUN, timeout=timeout, describe=self.describe
        )

    def set_state(self, state: str) -> None:
        """Mark it, and so the tasks that run, as "success" or "failed"."""
        self.api.request("PATCH", self.path, json={"state": state})

    def stop(self, *, timeout: float = 180) -> None:
        """Fail it if it still runs, and wait until its tasks have ended."""
        if self.read_state() not in ENDED_RUN:
            self.set_state("failed")
            self.wait_for("failed", timeout=timeout)

    def describe(self) -> str:
        """Say how its tasks are, with their logs."""
        lines = [f"run {self.run_id} of {self.dag_id}: {self.read_state()}"]
        for task in self.list_tasks():
            lines += [f"--- {task}: {task.read_state()}", *task.read_log()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Task:
    """A task instance of a run."""

    run: Run
    task_id: str
    map_index: int = -1

    def __str__(self) -> str:
        return self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"

    @property
    def path(self) -> str:
        """Where the API has it."""
        path = f"{self.run.path}/taskInstances/{quote(self.task_id)}"
        return path if self.map_index < 0 else f"{path}/{self.map_index}"

    def read(self) -> Json:
        """Return all that the API tells."""
        found: Json = self.run.api.request("GET", self.path)
        return found

    def read_state(self) -> str | None:
        """Return its state; None while it is not scheduled."""
        state: str | None = self.read()["state"]
        return state

    def wait_for(self, *states: str, timeout: float = 300) -> str:
        """Wait until it is in one of these states.

        :raises AirflowError: it ended in another one, or the time is up; with its log.
        """
        return _wait_for(
            self.read_state, states, ENDED_TASK, timeout=timeout, describe=self.describe
        )

    def describe(self) -> str:
        """Say how it is, with its log."""
        return "\n".join([f"{self} of {self.run.dag_id}: {self.read_state()}", *self.read_log()])

    def read_log(self, try_number: int | None = None) -> list[str]:
        """Return the lines of its log, of all tries if none is given."""
        entries = self.read_log_entries(try_number)
        return [line for entry in entries for line in _format(entry)]

    def read_log_entries(self, try_number: int | None = None) -> list[Json]:
        """Return its log as Airflow stores it, of all tries if none is given."""
        last = int(self.read()["try_number"])
        tries = range(1, last + 1) if try_number is None else [try_number]
        entries: list[Json] = []
        for number in tries:
            path = f"{self.run.path}/taskInstances/{quote(self.task_id)}/logs/{number}"
            query = {"map_index": self.map_index, "full_content": True}
            answer = self.run.api.send(
                "GET", path, params=query, headers={"Accept": "application/json"}
            )
            if answer.is_success:  # a try that never began has no log
                entries += answer.json()["content"]
        return entries

    def read_xcom(self, key: str = "return_value") -> Any:
        """Return the value it left for others under a key; None if there is none."""
        path = f"{self.run.path}/taskInstances/{quote(self.task_id)}/xcomEntries/{key}"
        answer = self.run.api.send("GET", path, params={"map_index": self.map_index})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        return answer.raise_for_status().json()["value"]

    def set_state(self, state: str) -> None:
        """Mark it as "success", "failed" or "skipped", as a person does with the mouse."""
        self.run.api.request("PATCH", self.path, json={"new_state": state})

    def clear(self) -> None:
        """Let it run again, as a person does with the mouse."""
        which = self.task_id if self.map_index < 0 else [self.task_id, self.map_index]
        body = {
            "dag_run_id": self.run.run_id,
            "task_ids": [which],
            "dry_run": False,
            "only_failed": False,
        }
        self.run.api.request("POST", f"/dags/{self.run.dag_id}/clearTaskInstances", json=body)


def _format(entry: Json) -> list[str]:
    lines = str(entry["event"]).splitlines()
    for error in entry.get("error_detail") or []:
        lines.append(f"{error['exc_type']}: {error['exc_value']}")
    return lines


def _wait_for(
    read_state: Callable[[], str | None],
    states: Collection[str],
    ended: Collection[str],
    *,
    timeout: float,
    describe: Callable[[], str],
) -> str:
    deadline = time.monotonic() + timeout
    state: str | None = None
    while time.monotonic() < deadline:
        try:
            state = read_state()
        except httpx.TransportError:  # the API server is being started again
            state = None
        if state in states:
            return str(state)
        if state in ended:
            break
        time.sleep(POLL_SECONDS)
    raise AirflowError(f"waited for {' or '.join(states)}, but it is {state}:\n{describe()}")
