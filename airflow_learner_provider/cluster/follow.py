"""A training from created to ended: the one coroutine that runs in a worker or in a triggerer."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any, Protocol

from airflow_learner_provider.cluster.client import (
    create_or_adopt,
    list_pods,
    put_to_rest,
    release,
    wait_until_gone,
)
from airflow_learner_provider.cluster.connection import Connection
from airflow_learner_provider.cluster.logs import LogCopier
from airflow_learner_provider.cluster.watch import Subscription, Watch
from airflow_learner_provider.exceptions import LearnerError
from airflow_learner_provider.training.diagnosis import (
    GRACE,
    Reason,
    Trouble,
)
from airflow_learner_provider.training.objects import (
    TrainingObjects,
    build_objects,
)
from airflow_learner_provider.training.observation import Observation
from airflow_learner_provider.training.outcome import (
    Outcome,
    build_outcome,
    build_table,
    describe_unready,
)
from airflow_learner_provider.training.request import TrainingRequest
from airflow_learner_provider.training.spec import (
    OnFinish,
    WaitUntil,
)
from airflow_learner_provider.training.status import (
    Phase,
    Status,
    compute_status,
)

# After the first failure: long enough for the others to fail because of it and be told apart.
_FAILURE_GRACE_SECONDS = 3
_LOG_DRAIN_SECONDS = 5
_GONE_SECONDS = 60


class Log(Protocol):
    """What is used of a logger; Airflow's own is not a `logging.Logger`."""

    def info(self, message: str, /, *args: Any) -> Any:
        """Log something that goes as it should."""

    def warning(self, message: str, /, *args: Any) -> Any:
        """Log something that may go wrong."""


async def run_training(connection: Connection, request: TrainingRequest, log: Log) -> Outcome:
    """Create or adopt a training, follow it, and let its objects go.

    A training that fails is an outcome, not an exception. When this coroutine is cancelled the
    training goes on: whoever cancels decides whether to `release` it.

    :param log: takes what the user should see, and every learner's lines.
    :raises InvalidSpecError: the spec cannot be built; nothing was sent to the cluster.
    :raises LearnerError: it cannot be created or followed; what was made is deleted.
    """
    # In a thread: the first call imports the models, which takes seconds.
    objects = await asyncio.to_thread(
        build_objects,
        request.spec,
        request.owner,
        namespace=(await connection.api.credentials()).namespace,
        version=request.version,
    )
    async with connection.watch(objects.namespace) as watch:
        stateful_set, created = await create_or_adopt(connection.api, objects, request.owner)
        where = f"{objects.namespace}/{objects.name}"
        log.info(
            "%s StatefulSet %s with %d learners",
            "Created" if created else "Adopted",
            where,
            objects.learners,
        )
        uid = stateful_set["metadata"]["uid"]
        observation = Observation(objects.name, uid, stateful_set, was_seen=True)
        try:
            run = _Run(connection, request, objects, observation, log, created=created)
            return await run.to_the_end(watch)
        except LearnerError:
            await release(connection.api, objects.namespace, objects.name, request.owner)
            raise


class _Run:
    def __init__(
        self,
        connection: Connection,
        request: TrainingRequest,
        objects: TrainingObjects,
        observation: Observation,
        log: Log,
        *,
        created: bool,
    ) -> None:
        self._api = connection.api
        self._spec = request.spec
        self._owner = request.owner
        self._deadline = request.deadline
        self._objects = objects
        self._observation = observation
        self._log = log
        self._created = created
        self._begun = time.time() if created else _created_at(observation)
        self._been_ready = False
        self._has_started = False
        self._since: dict[tuple[Reason, int | None], float] = {}
        self._told: set[tuple[Reason, int | None]] = set()

    async def to_the_end(self, watch: Watch) -> Outcome:
        """Follow, and return the outcome; the objects are gone or at rest by then."""
        if self._spec.wait_until is WaitUntil.CREATED:
            status = compute_status(self._observation, learners=self._spec.learners)
            return self._outcome(status, None)
        logs = LogCopier(
            self._api,
            self._objects.namespace,
            self._observation,
            lambda ordinal, line: self._log.info("[%d] %s", ordinal, line),
        )
        try:
            async with watch.subscribe(self._observation) as subscription:
                status, trouble = await self._follow(subscription, logs)
            if trouble is not None or status.phase is Phase.SUCCEEDED:
                ended = [row.ordinal for row in status.learners if row.record is not None]
                await logs.drain(ended, seconds=_LOG_DRAIN_SECONDS)
        finally:
            await logs.stop()
        outcome = self._outcome(status, trouble)
        if outcome["phase"] in {Phase.SUCCEEDED, Phase.FAILED}:
            self._log.info("\n".join(["Learners:", *build_table(outcome["learners"])]))
            await self._let_go(succeeded=trouble is None)
        return outcome

    async def _follow(
        self, subscription: Subscription, logs: LogCopier
    ) -> tuple[Status, Trouble | None]:
        while True:
            logs.update()
            status = compute_status(self._observation, learners=self._spec.learners)
            now = time.time()
            if not self._created and all(row.started is not None for row in status.learners):
                # Whoever followed it before has seen it ready, or will be told that it is.
                self._has_started = True
            if status.phase is Phase.SUCCEEDED:
                return status, None
            trouble, wake = self._judge(status, now)
            if trouble is not None:
                return status, trouble
            if status.ready and not self._been_ready:
                self._been_ready = self._has_started = True
                self._log.info("All %d learners are ready", self._spec.learners)
                if self._spec.wait_until is WaitUntil.READY:
                    return status, None
            self._tell(status)
            await subscription.changed(within=None if wake is None else max(wake - now, 0))

    def _judge(self, status: Status, now: float) -> tuple[Trouble | None, float | None]:
        """Return the trouble that ends the training, and when to look again if nothing changes."""
        limits = self._limits(status, now)
        due = next((trouble for moment, trouble in limits if moment <= now), None)
        return due, min((moment for moment, _ in limits), default=None)

    def _limits(self, status: Status, now: float) -> list[tuple[float, Trouble]]:
        """The moments at which the training fails if nothing changes, most telling first."""
        limits: list[tuple[float, Trouble]] = []
        if status.phase is Phase.FAILED and status.trouble is not None:
            ended = all(row.record is not None or row.trouble for row in status.learners)
            grace = 0 if ended else _FAILURE_GRACE_SECONDS
            limits.append((self._first_seen(status.trouble, now) + grace, status.trouble))
        for row in status.learners:
            seconds = GRACE.get(row.trouble.reason) if row.trouble is not None else None
            if row.trouble is not None and seconds is not None:
                limits.append((self._first_seen(row.trouble, now) + seconds, row.trouble))
        self._forget_passed(status)
        if not status.ready and not self._has_started:
            timeout = self._spec.ready_timeout
            limits.append((self._begun + timeout, describe_unready(status, seconds=timeout)))
        if self._deadline is not None:
            said = f"did not end within {self._deadline - self._begun:.0f} s"
            limits.append((self._deadline, Trouble(Reason.TIMEOUT, said)))
        return limits

    def _first_seen(self, trouble: Trouble, now: float) -> float:
        return self._since.setdefault((trouble.reason, trouble.ordinal), now)

    def _forget_passed(self, status: Status) -> None:
        troubles = [status.trouble, *(row.trouble for row in status.learners)]
        present = {(trouble.reason, trouble.ordinal) for trouble in troubles if trouble}
        self._since = {key: since for key, since in self._since.items() if key in present}

    def _tell(self, status: Status) -> None:
        for row in status.learners:
            trouble = row.trouble
            if trouble is None or trouble.reason is Reason.NOT_READY or not trouble.message:
                continue
            key = (trouble.reason, trouble.ordinal)
            if key not in self._told:
                self._told.add(key)
                self._log.warning(
                    "Learner %s: %s [%s]", row.ordinal, trouble.message.strip(), trouble.reason
                )

    def _outcome(self, status: Status, trouble: Trouble | None) -> Outcome:
        return build_outcome(
            self._observation,
            status,
            namespace=self._objects.namespace,
            gpus=self._spec.gpus,
            trouble=trouble,
        )

    async def _let_go(self, *, succeeded: bool) -> None:
        """Delete the objects, or put them to rest; what goes wrong here changes no verdict."""
        namespace, name = self._objects.namespace, self._objects.name
        uid = self._observation.uid or ""
        keep = self._spec.on_finish_action is OnFinish.KEEP or (
            self._spec.on_finish_action is OnFinish.DELETE_ON_SUCCESS and not succeeded
        )
        try:
            if keep:
                if self._observation.stateful_set is not None:
                    await put_to_rest(self._api, namespace, name, uid=uid)
                    self._log.info("Kept StatefulSet %s/%s, scaled to 0", namespace, name)
                return
            if not await release(self._api, namespace, name, self._owner):
                return
            if not await wait_until_gone(
                self._api, namespace, name, uid=uid, seconds=_GONE_SECONDS
            ):
                left = await list_pods(self._api, namespace, name)
                self._log.warning(
                    "StatefulSet %s/%s is not gone after %d s; pods left: %s",
                    namespace,
                    name,
                    _GONE_SECONDS,
                    ", ".join(left) or "none",
                )
        except LearnerError as e:
            self._log.warning("StatefulSet %s/%s may be left behind: %s", namespace, name, e)


def _created_at(observation: Observation) -> float:
    metadata = (observation.stateful_set or {}).get("metadata", {})
    return datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
