"""Show what a task would create: its templates rendered, its objects as YAML for kubectl."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import yaml
from airflow.sdk.api.datamodels._generated import TIRunContext
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowNotFoundException,
    AirflowRuntimeError,
)
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from jinja2 import TemplateError
from pydantic import PrivateAttr

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.hooks import DEFAULT_CONN_ID, LearnerHook, read_accounts
from airflow_learner_provider.training.accounts import Account
from airflow_learner_provider.training.manifests import build_manifests
from airflow_learner_provider.training.objects import build_objects
from airflow_learner_provider.training.ssh import SSHKey

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_learner_provider.training.request import TrainingRequest

# In place of what only a connection knows, where that cannot be read; no Secret's value is shown.
_UNKNOWN_ACCOUNT = Account(username="unknown", password="unknown", host="unknown")  # noqa: S106


def render_manifests(
    task: Any,
    *,
    conf: Mapping[str, Any] | None = None,
    logical_date: datetime | None = None,
    map_index: int = 0,
) -> str:
    """Return the manifests of a task's training as YAML; the cluster is asked nothing.

    What another task would have returned stays in them as a template. Where the way a learner's
    end is kept depends on the cluster, it is the one that every cluster knows.

    :param task: a LearnerStatefulSetOperator of a DAG, or one that is mapped.
    :param conf: the run's configuration: values of the DAG's params.
    :param logical_date: of the run; now by default.
    :param map_index: which one of a mapped task's instances.
    :raises InvalidSpecError: the rendered arguments are not a training; it names the argument.
    """
    request, conn_id = _render_request(
        task, conf=conf or {}, logical_date=logical_date or datetime.now(UTC), map_index=map_index
    )
    spec = request.spec
    native = spec.completion == "native" or not isinstance(spec.command, str)
    accounts = {conn_id: _read_account(conn_id) for conn_id in spec.connection_ids}
    objects = build_objects(
        spec,
        request.owner,
        namespace=_read_namespace(conn_id) or "default",
        version=request.version,
        native=native,
        accounts=accounts,
        ssh_key=SSHKey("", "") if spec.launcher == "mpi" else None,
    )
    manifests = build_manifests(objects)
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def _render_request(
    task: Any, *, conf: Mapping[str, Any], logical_date: datetime, map_index: int
) -> tuple[TrainingRequest, str]:
    ti = _build_task_instance(
        copy.copy(task),
        conf=conf,
        logical_date=logical_date,
        map_index=map_index if task.is_mapped else -1,
    )
    context: Context = ti.get_template_context()
    try:
        ti.task.render_template_fields(context)
    except (TemplateError, AirflowRuntimeError, AirflowNotFoundException) as e:
        raise InvalidSpecError(f"{task.task_id}: a template cannot be rendered: {e}") from e
    # Of a mapped task, rendering has made the one of this index.
    rendered: Any = context["task"]
    try:
        return rendered.build_request(context), rendered.kubernetes_conn_id
    except AirflowFailException as e:
        unknown = ", ".join(ti.unknown)
        only_then = f" (known only while a run goes on: {unknown})" if unknown else ""
        raise InvalidSpecError(f"{e}{only_then}") from e


def _read_account(conn_id: str) -> Account:
    try:
        return read_accounts([conn_id])[conn_id]
    except AirflowNotFoundException:
        return _UNKNOWN_ACCOUNT


def _read_namespace(kubernetes_conn_id: str) -> str | None:
    try:
        return LearnerHook(kubernetes_conn_id).get_conn().namespace
    except AirflowNotFoundException:
        if kubernetes_conn_id == DEFAULT_CONN_ID:
            raise
        return None


class _Unknown(str):
    """What another task returns, as the template that asks for it; so are parts of it."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> _Unknown:
        return _Unknown(f"{self.removesuffix(' }}')}[{key!r}] }}}}")

    def __getattr__(self, name: str) -> _Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unknown(f"{self.removesuffix(' }}')}.{name} }}}}")


class _DryTaskInstance(RuntimeTaskInstance):
    """A task instance of a run that is not there."""

    _unknown: list[str] = PrivateAttr(default_factory=list)

    @property
    def unknown(self) -> list[str]:
        """What could not be known, as templates."""
        return self._unknown

    def xcom_pull(
        self, task_ids: Any = None, *args: Any, key: str = "return_value", **kwargs: Any
    ) -> Any:
        """Return the question as the answer."""
        more = "" if key == "return_value" else f", key={key!r}"
        asked = _Unknown(f"{{{{ ti.xcom_pull(task_ids={task_ids!r}{more}) }}}}")
        self._unknown.append(asked)
        return asked


def _build_task_instance(
    task: Any, *, conf: Mapping[str, Any], logical_date: datetime, map_index: int
) -> _DryTaskInstance:
    """Build the task instance of a run that a user would start."""
    run_id = f"manual__{logical_date.isoformat()}"
    run = {
        "dag_id": task.dag_id,
        "run_id": run_id,
        "logical_date": logical_date,
        "data_interval_start": logical_date,
        "data_interval_end": logical_date,
        "run_after": logical_date,
        "start_date": logical_date,
        "end_date": None,
        "run_type": "manual",
        "state": "running",
        "conf": dict(conf),
        "consumed_asset_events": [],
        "partition_key": None,
    }
    values: dict[str, Any] = {
        "id": uuid.UUID(int=0),
        "task_id": task.task_id,
        "dag_id": task.dag_id,
        "run_id": run_id,
        "try_number": 1,
        "map_index": map_index,
        "task": task,
        "start_date": None,
    }
    ti = _DryTaskInstance.model_construct(**values)
    from_server = TIRunContext.model_validate({"dag_run": run, "max_tries": 0})
    ti._ti_context_from_server = from_server  # noqa: SLF001 - as Airflow itself sets it
    return ti


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines, such as scripts, line by line."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(_Unknown, _represent_text)
