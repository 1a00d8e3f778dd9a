"""Operators: launch a training and see it through, or remove one."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator, conf
from airflow.sdk.exceptions import AirflowFailException, AirflowTaskTimeout

from airflow_learner_provider import __version__
from airflow_learner_provider.exceptions import (
    InvalidSpecError,
    ObjectConflictError,
    TrainingKilledError,
)
from airflow_learner_provider.hooks import DEFAULT_CONN_ID, LearnerHook, read_accounts
from airflow_learner_provider.links import build_links, push_links
from airflow_learner_provider.reporting import report_progress
from airflow_learner_provider.triggers import (
    LearnerTrigger,
    plan_ending,
    read_event,
    release_training,
)

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_learner_provider.cluster.connection import Connection
    from airflow_learner_provider.training.outcome import Outcome
    from airflow_learner_provider.training.request import TrainingRequest

# How long a training may take to end, after its verdict, before Airflow's own alarm.
_ENDING_SECONDS = 90

_SPEC_FIELDS = (
    "learners",
    "command",
    "image",
    "framework",
    "framework_version",
    "launcher",
    "processes_per_learner",
    "cpus",
    "memory",
    "gpus",
    "gpu_resource",
    "env",
    "training_data",
    "results",
    "artifacts",
    "name",
    "namespace",
    "labels",
    "node_selector",
    "image_pull_secret",
    "image_pull_conn_id",
    "image_pull_policy",
    "staging_image",
    "pod_template",
    "pod_management_policy",
    "min_ready_seconds",
    "completion",
    "holder_image",
    "max_restarts",
    "restart_on",
    "wait_until",
    "ready_timeout",
    "on_finish_action",
)


class LearnerStatefulSetOperator(BaseOperator):
    """Runs a distributed training as a Kubernetes StatefulSet of learners.

    All arguments are plain JSON values and templates are rendered in each of them.

    :param learners: how many learners train together.
    :param command: script for bash, run once by every learner; or a list, run without a shell,
        where the cluster has native completion.
    :param image: image of the learners; it has bash, unless the command is a list.
    :param framework: names the image instead, together with framework_version.
    :param framework_version: version of the framework, such as "1.5".
    :param launcher: "none", "torchrun", "jax", "tensorflow" or "mpi": how learners find each other.
    :param processes_per_learner: how many processes torchrun or mpirun starts in each learner.
    :param cpus: CPUs of one learner, a Kubernetes quantity.
    :param memory: memory of one learner, a Kubernetes quantity such as "2Gi".
    :param gpus: GPUs of one learner.
    :param gpu_resource: what they are requested by, if not "nvidia.com/gpu", such as "amd.com/gpu".
    :param env: environment variables; numbers and truth values become texts.
    :param training_data: store with the training data: type, mount_path and what the type needs.
    :param results: store for the results.
    :param artifacts: files of the results, names or patterns such as "model-*.npz" in RESULT_DIR:
        each has size and checksum in the outcome, and is an event of the asset of its URI.
    :param name: name of the StatefulSet, at most 52 characters; made from the task by default.
    :param namespace: where it runs; by default the connection's, then the context's or the pod's.
    :param kubernetes_conn_id: connection of type `kubernetes`.
    :param labels: labels of all objects.
    :param node_selector: labels that a learner's node must have.
    :param image_pull_secret: name of an existing Secret to pull the image with.
    :param image_pull_conn_id: connection of type `docker` from which such a Secret is made instead.
    :param image_pull_policy: "Always", "IfNotPresent" or "Never".
    :param staging_image: image with rclone and a shell, for "s3_datastore"; default in `[learner]`.
    :param pod_template: a PodTemplateSpec that the other arguments fill in.
    :param pod_management_policy: "Parallel", or "OrderedReady" to start one learner after another.
    :param min_ready_seconds: seconds that a learner must stay ready to count.
    :param completion: "native": the learner's container is not restarted, and a holder keeps the
        pod; "wrapper": a shell around the command keeps its exit code; "auto": native where the
        cluster has it.
    :param holder_image: small image with a shell for the holder; default in `[learner]`, else the
        learners' own.
    :param max_restarts: how often all learners are started again, within the task.
    :param restart_on: reasons for which they are.
    :param wait_until: "created", "ready" or "completed": how far the task follows the training.
    :param ready_timeout: how long until all learners are ready; timedelta or seconds.
    :param on_finish_action: "delete", "keep" (scaled to 0) or "delete_on_success".
    :param links: addresses, such as a dashboard's, by the names of buttons on the task's page.
    :param deferrable: wait in the triggerer; default from `[operators] default_deferrable`.
    """

    template_fields: Sequence[str] = (*_SPEC_FIELDS, "kubernetes_conn_id", "links")
    template_fields_renderers: ClassVar = {"command": "bash", "pod_template": "yaml", "env": "json"}
    operator_extra_links = property(build_links)
    ui_color = "#dbe9ff"

    def __init__(
        self,
        *,
        learners: int | str,
        command: str | Sequence[str],
        image: str | None = None,
        framework: str | None = None,
        framework_version: str | None = None,
        launcher: str = "none",
        processes_per_learner: int | str = 1,
        cpus: float | str = 1,
        memory: str = "1Gi",
        gpus: int | str = 0,
        gpu_resource: str | None = None,
        env: Mapping[str, Any] | None = None,
        training_data: Mapping[str, Any] | None = None,
        results: Mapping[str, Any] | None = None,
        artifacts: Sequence[str] = (),
        name: str | None = None,
        namespace: str | None = None,
        kubernetes_conn_id: str = DEFAULT_CONN_ID,
        labels: Mapping[str, str] | None = None,
        node_selector: Mapping[str, str] | None = None,
        image_pull_secret: str | None = None,
        image_pull_conn_id: str | None = None,
        image_pull_policy: str | None = None,
        staging_image: str | None = conf.get("learner", "staging_image", fallback=None),
        pod_template: Mapping[str, Any] | None = None,
        pod_management_policy: str | None = None,
        min_ready_seconds: int | str = 5,
        completion: str = "auto",
        holder_image: str | None = conf.get("learner", "holder_image", fallback=None),
        max_restarts: int | str = 0,
        restart_on: Sequence[str] = ("Preempted", "Evicted", "NodeLost"),
        wait_until: str = "completed",
        ready_timeout: timedelta | float | str = timedelta(minutes=10),
        on_finish_action: str = "delete",
        links: Mapping[str, str] | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.learners = learners
        self.command = command
        self.image = image
        self.framework = framework
        self.framework_version = framework_version
        self.launcher = launcher
        self.processes_per_learner = processes_per_learner
        self.cpus = cpus
        self.memory = memory
        self.gpus = gpus
        self.gpu_resource = gpu_resource
        self.env = env
        self.training_data = training_data
        self.results = results
        self.artifacts = artifacts
        self.name = name
        self.namespace = namespace
        self.kubernetes_conn_id = kubernetes_conn_id
        self.labels = labels
        self.node_selector = node_selector
        self.image_pull_secret = image_pull_secret
        self.image_pull_conn_id = image_pull_conn_id
        self.image_pull_policy = image_pull_policy
        self.staging_image = staging_image
        self.pod_template = pod_template
        self.pod_management_policy = pod_management_policy
        self.min_ready_seconds = min_ready_seconds
        self.completion = completion
        self.holder_image = holder_image
        self.max_restarts = max_restarts
        self.restart_on = restart_on
        self.wait_until = wait_until
        self.ready_timeout = ready_timeout
        self.on_finish_action = on_finish_action
        self.links = links
        self.deferrable = deferrable
        self._is_starting = False
        self._outcome: Outcome | None = None
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def execute(self, context: Context) -> Any:
        """Run the training to its end, here or in the triggerer.

        :return: the outcome, plain JSON; see `training.outcome.Outcome`.
        """
        request = self.build_request(context)
        if self.deferrable:
            ending = plan_ending(self)
            trigger = LearnerTrigger(request.to_json(), self.kubernetes_conn_id, **ending)
            self.defer(trigger=trigger, method_name="execute_complete")
        self._is_starting = True
        push_links(self, context["ti"])
        _postpone_alarm()
        try:
            outcome = asyncio.run(self._run_here(request))
        except (InvalidSpecError, ObjectConflictError) as e:
            raise AirflowFailException(str(e)) from e
        return self._conclude(context, outcome)

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None) -> Any:
        """Turn the trigger's event into the outcome of the task."""
        return self._conclude(context, read_event(event))

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Delete the training when its trigger could not run: nobody else would."""
        if next_method == "__fail__":
            request = self.build_request(context).to_json()
            asyncio.run(release_training(request, self.kubernetes_conn_id))
        return super().resume_execution(next_method, next_kwargs, context)

    def dry_run(self) -> None:
        """Print the manifests that kubectl would take; the cluster is asked nothing."""
        from airflow_learner_provider.manifests import render_manifests

        print(render_manifests(self))  # noqa: T201 - where a person looks

    def get_openlineage_facets_on_complete(self, _: Any) -> OperatorLineage[Any, Any] | None:
        """Tell OpenLineage, which calls this, what the training has read and written."""
        from airflow_learner_provider.lineage import build_lineage

        known = self._outcome
        return None if known is None else build_lineage(self._read_spec_values(), known)

    def on_kill(self) -> None:
        """End the training with the task; `execute` then deletes the objects and raises."""
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(task.cancel)
        elif self._is_starting and not isinstance(sys.exception(), AirflowTaskTimeout):
            raise TrainingKilledError("the task was killed before its training was created")

    async def _run_here(self, request: TrainingRequest) -> Outcome:
        from airflow_learner_provider.cluster.connection import connect
        from airflow_learner_provider.cluster.follow import run_training

        if task := asyncio.current_task():
            self._running = asyncio.get_running_loop(), task
            self._is_starting = False
        accounts = await asyncio.to_thread(read_accounts, request.spec.connection_ids)
        hook = LearnerHook(self.kubernetes_conn_id)
        settings = await asyncio.to_thread(hook.get_conn)
        async with connect(settings, lambda: asyncio.to_thread(hook.get_conn)) as connection:
            try:
                report = partial(report_progress, request.owner)
                return await run_training(
                    connection, request, self.log, accounts=accounts, report=report
                )
            except asyncio.CancelledError:
                await self._release(connection, request)
                raise TrainingKilledError(
                    f"training {request.name}: the task was killed; its objects are deleted"
                ) from None
            finally:
                self._running = None

    async def _release(self, connection: Connection, request: TrainingRequest) -> None:
        from airflow_learner_provider.cluster.client import release

        namespace = request.spec.namespace or (await connection.api.credentials()).namespace
        await release(connection.api, namespace, request.name, request.owner)

    def build_request(self, context: Context) -> TrainingRequest:
        """Parse the rendered arguments.

        :raises AirflowFailException: they are not a training; it names each wrong argument.
        """
        from airflow_learner_provider.training.naming import Owner
        from airflow_learner_provider.training.request import TrainingRequest
        from airflow_learner_provider.training.spec import parse_training_spec

        ti = context["ti"]
        try:
            spec = parse_training_spec(self._read_spec_values())
        except InvalidSpecError as e:
            # Trying again cannot help.
            raise AirflowFailException(f"{self.task_id}: {e}") from e
        deadline = None
        if self.execution_timeout is not None and ti.start_date is not None:
            deadline = (ti.start_date + self.execution_timeout).timestamp()
        owner = Owner(
            dag_id=ti.dag_id,
            task_id=ti.task_id,
            run_id=ti.run_id,
            map_index=-1 if ti.map_index is None else ti.map_index,
            try_number=ti.try_number,
            task_instance_id=str(ti.id),
            durable=not self.deferrable,
        )
        return TrainingRequest(spec, owner, deadline, __version__)

    def _read_spec_values(self) -> dict[str, Any]:
        from airflow_learner_provider.training.rendering import to_json

        return {field: to_json(getattr(self, field)) for field in _SPEC_FIELDS}

    def _conclude(self, context: Context, outcome: Outcome) -> Any:
        from airflow_learner_provider.assets import add_artifact_events, add_evidence
        from airflow_learner_provider.training.outcome import find_error

        self._outcome = outcome
        error = find_error(outcome, target=self.wait_until)
        if error is None:
            add_evidence(context, self.outlets, outcome)
            add_artifact_events(context, self.outlets, outcome)
            return outcome
        context["ti"].xcom_push(key="outcome", value=outcome)
        raise error


class LearnerDeleteOperator(BaseOperator):
    """Removes a training; well suited `as_teardown()`. One that is not there is no error.

    :param name: name of the StatefulSet.
    :param namespace: its namespace; by default the connection's, then the context's or the pod's.
    :param kubernetes_conn_id: connection of type `kubernetes`.
    :param timeout: seconds to wait until its pods are gone.
    """

    template_fields: Sequence[str] = ("name", "namespace", "kubernetes_conn_id")
    ui_color = "#dbe9ff"

    def __init__(
        self,
        *,
        name: str,
        namespace: str | None = None,
        kubernetes_conn_id: str = DEFAULT_CONN_ID,
        timeout: float = 120,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.name = name
        self.namespace = namespace
        self.kubernetes_conn_id = kubernetes_conn_id
        self.timeout = timeout

    def execute(self, context: Context) -> None:
        """Delete the StatefulSet, and all it owns with it, and wait until they are gone."""
        asyncio.run(self._delete())

    async def _delete(self) -> None:
        from airflow_learner_provider.cluster.client import delete_training
        from airflow_learner_provider.cluster.connection import connect

        settings = await asyncio.to_thread(LearnerHook(self.kubernetes_conn_id).get_conn)
        async with connect(settings) as connection:
            namespace = self.namespace or (await connection.api.credentials()).namespace
            if await delete_training(connection.api, namespace, self.name, seconds=self.timeout):
                self.log.info("Deleted StatefulSet %s/%s", namespace, self.name)
            else:
                self.log.info("There is no StatefulSet %s/%s", namespace, self.name)


def _postpone_alarm() -> None:
    """Let the training end by its own deadline, which is the task's `execution_timeout`.

    Airflow's alarm for it begins to count later, but would still interrupt the deletion.
    """
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if left > 0:
        signal.setitimer(signal.ITIMER_REAL, left + _ENDING_SECONDS)
