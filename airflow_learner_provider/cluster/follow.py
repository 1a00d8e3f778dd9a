"""A training from created to ended: the one coroutine that runs in a worker or in a triggerer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

from airflow_learner_provider.cluster.api import Api
from airflow_learner_provider.cluster.building import build, fit
from airflow_learner_provider.cluster.client import (
    create_or_adopt,
    list_pods,
    mark_reported,
    note_logs,
    put_to_rest,
    release,
    scale,
    scale_to_zero,
    wait_until_gone,
)
from airflow_learner_provider.cluster.connection import Connection
from airflow_learner_provider.cluster.logs import LogCopier, read_log_end, recover_records
from airflow_learner_provider.cluster.progress import ProgressTeller
from airflow_learner_provider.cluster.rights import check_rights
from airflow_learner_provider.cluster.task_log import Log
from airflow_learner_provider.cluster.watch import Subscription, Watch
from airflow_learner_provider.exceptions import LearnerError
from airflow_learner_provider.training.accounts import NO_ACCOUNTS, Accounts
from airflow_learner_provider.training.artifacts import read_results_uri
from airflow_learner_provider.training.diagnosis import Reason, Trouble
from airflow_learner_provider.training.limits import (
    Limits,
    Restart,
    read_log_positions,
    read_progress,
    read_restarts,
)
from airflow_learner_provider.training.objects import TrainingObjects
from airflow_learner_provider.training.observation import (
    Observation,
    find_beginning,
    has_started,
)
from airflow_learner_provider.training.outcome import (
    Outcome,
    build_outcome,
    build_table,
    write_note,
)
from airflow_learner_provider.training.pruning import prune
from airflow_learner_provider.training.request import TrainingRequest
from airflow_learner_provider.training.spec import OnFinish, WaitUntil
from airflow_learner_provider.training.status import Phase, Status, compute_status

_LOG_DRAIN_SECONDS = 5
_GONE_SECONDS = 60
_LONGEST_PAUSE_SECONDS = 60
_POSITIONS_SECONDS = 5
_LEARNERS_A_SECOND = 5000


async def run_training(
    connection: Connection,
    request: TrainingRequest,
    log: Log,
    *,
    accounts: Accounts = NO_ACCOUNTS,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> Outcome:
    """Create or adopt a training, follow it, and let its objects go.

    A training that fails is an outcome, not an exception. When this coroutine is cancelled the
    training goes on: whoever cancels decides whether to `release` it.

    :param log: takes what the user should see, and every learner's lines.
    :param accounts: what the connections say that the spec names.
    :param report: is told now and then, in a thread, how far the training is: see
        `training.progress.ProgressCurve.to_json`.
    :raises InvalidSpecError: the spec cannot be built; nothing was sent to the cluster.
    :raises LearnerError: it cannot be created or followed; what was made is deleted.
    """
    objects = await build(
        connection, request, accounts, native=request.spec.completion != "wrapper"
    )
    namespace = objects.namespace
    async with connection.watch(namespace) as watch:
        try:
            run = await _begin(connection, request, objects, log, accounts=accounts, report=report)
            del objects  # a training may take days, and there may be thousands
            return await run.to_the_end(watch)
        except Exception as e:
            await _release_after(e, connection.api, namespace, request)
            raise


async def _begin(
    connection: Connection,
    request: TrainingRequest,
    objects: TrainingObjects,
    log: Log,
    *,
    accounts: Accounts,
    report: Callable[[dict[str, Any]], None] | None,
) -> _Run:
    """Create or adopt the training."""
    owned = {manifest["kind"] for manifest in objects.owned}
    await check_rights(connection.api, objects.namespace, owned)
    objects = await fit(connection, request, accounts, objects)
    stateful_set, created, started = await create_or_adopt(connection.api, objects, request.owner)
    log.info(
        "%s StatefulSet %s/%s with %d learners",
        "Created" if created else "Adopted",
        objects.namespace,
        objects.name,
        objects.learners,
    )
    uid = stateful_set["metadata"]["uid"]
    kept = prune("StatefulSet", stateful_set)
    observation = Observation(objects.name, uid, kept, was_seen=True)
    return _Run(
        connection,
        request,
        objects.namespace,
        observation,
        log,
        progress=ProgressTeller(log, report, read_progress(observation)),
        started=started,
    )


async def _release_after(
    error: Exception, api: Api, namespace: str, request: TrainingRequest
) -> None:
    """Delete what a try holds after an error, which stays the one to tell.

    It says as well when something could not be deleted.
    """
    try:
        await release(api, namespace, request.name, request.owner)
    except LearnerError as e:
        where = f"StatefulSet {namespace}/{request.name}"
        error.args = (f"{error}; {where} and what it owns may be left behind: {e}",)


class _Run:
    def __init__(
        self,
        connection: Connection,
        request: TrainingRequest,
        namespace: str,
        observation: Observation,
        log: Log,
        *,
        progress: ProgressTeller,
        started: bool,
    ) -> None:
        self._api = connection.api
        self._spec = request.spec
        self._owner = request.owner
        self._namespace = namespace
        self._name = observation.name
        self._results_uri = read_results_uri(observation.stateful_set)
        self._log_limits = connection.log_limits
        self._observation = observation
        self._log = log
        self._progress = progress
        self._restarts: list[Restart] = read_restarts(observation)
        self._limits = Limits(
            request.spec,
            begun=time.time() if started else find_beginning(observation),
            deadline=request.deadline,
            adopted=not started,
        )
        self._told: set[tuple[Reason, int | None]] = set()
        self._noted = read_log_positions(observation)

    async def to_the_end(self, watch: Watch) -> Outcome:
        """Follow, and return the outcome; the objects are gone or at rest by then."""
        if self._spec.wait_until is WaitUntil.CREATED:
            status = compute_status(self._observation, learners=self._spec.learners)
            await self._hand_over()
            return self._outcome(status, None)
        async with watch.subscribe(self._observation) as subscription, self._progress:
            while True:
                status, trouble = await self._follow_group(subscription)
                if trouble is None or not self._may_restart(trouble):
                    break
                await self._restart(subscription, trouble)
        outcome = self._outcome(status, trouble)
        if outcome["phase"] in {Phase.SUCCEEDED, Phase.FAILED}:
            await self._show_log_end(trouble)
            self._log.info("\n".join(["Learners:", *build_table(outcome["learners"])]))
            for row in outcome["artifacts"]:
                told = row["uri"], row["size"], row["sha256"]
                self._log.info("Artifact %s: %d bytes, sha256 %s", *told)
            await self._let_go(outcome)
        else:
            await self._hand_over()
        return outcome

    async def _show_log_end(self, trouble: Trouble | None) -> None:
        """Show what the learner that failed first said last, folded in Airflow's log."""
        pod = None
        if trouble is not None and trouble.ordinal is not None:
            pod = self._observation.pods.get(trouble.ordinal)
        if trouble is None or pod is None or not has_started(pod):
            return
        lines = await read_log_end(self._api, self._namespace, pod)
        title = f"::group::Last lines of learner {trouble.ordinal}, which failed first"
        for line in (title, *lines, "::endgroup::"):
            self._log.info("%s", line)

    async def _follow_group(self, subscription: Subscription) -> tuple[Status, Trouble | None]:
        """Follow one start of the group to its end, with the learners' logs."""
        logs = LogCopier(
            self._api,
            self._namespace,
            self._observation,
            self._log_limits,
            write=self._write,
            warn=self._log.warning,
            positions=read_log_positions(self._observation),
        )
        keeper = asyncio.create_task(self._keep_positions(logs))
        try:
            status, trouble = await self._follow(subscription, logs)
            ended = [row.ordinal for row in status.learners if row.record is not None]
            await logs.drain(ended, seconds=_LOG_DRAIN_SECONDS)
        except asyncio.CancelledError:
            # A triggerer that stops: the next one goes on with the logs where this one was. A line
            # that is copied while this is noted would come a second time.
            keeper.cancel()
            await logs.stop()
            await self._note_positions(logs)
            raise
        finally:
            keeper.cancel()
            await logs.stop()
        return status, trouble

    def _write(self, whose: str, line: str, at: float) -> None:
        if not self._progress.take(whose, line, at=at):
            self._log.info("[%s] %s", whose, line)

    async def _follow(
        self, subscription: Subscription, logs: LogCopier
    ) -> tuple[Status, Trouble | None]:
        was_ready = False
        while True:
            logs.update()
            await recover_records(self._api, self._namespace, self._observation)
            status = compute_status(self._observation, learners=self._spec.learners)
            now = time.time()
            if status.phase is Phase.SUCCEEDED:
                return status, None
            trouble, wake = self._limits.judge(status, now)
            if trouble is not None:
                return status, trouble
            if status.ready and not was_ready:
                was_ready = True
                self._log.info("All %d learners are ready", self._spec.learners)
                if self._spec.wait_until is WaitUntil.READY:
                    return status, None
            self._tell(status)
            await subscription.changed(within=None if wake is None else max(wake - now, 0))
            # Each look goes over all learners, and changes of many learners come in swarms.
            await asyncio.sleep(self._spec.learners / _LEARNERS_A_SECOND)

    def _may_restart(self, trouble: Trouble) -> bool:
        return (
            trouble.reason in self._spec.restart_on
            and len(self._restarts) < self._spec.max_restarts
            and self._observation.stateful_set is not None
        )

    async def _restart(self, subscription: Subscription, trouble: Trouble) -> None:
        """End all learners and start them again: one alone could not join the others."""
        pause = min(5 * 2.0 ** len(self._restarts), _LONGEST_PAUSE_SECONDS)
        self._restarts.append(
            Restart(
                reason=trouble.reason,
                message=trouble.message,
                ordinal=trouble.ordinal,
                at=time.time() + pause,
            )
        )
        self._log.warning(
            "Learner %s: %s [%s]; starting all learners again in %.0f s (restart %d of %d)",
            trouble.ordinal,
            trouble.message,
            trouble.reason,
            pause,
            len(self._restarts),
            self._spec.max_restarts,
        )
        stateful_set = {**(self._observation.stateful_set or {}), "spec": {"replicas": 0}}
        await scale_to_zero(self._api, stateful_set, restarts=[*map(dict, self._restarts)])
        await asyncio.sleep(pause)
        gone_by = time.time() + _GONE_SECONDS
        while self._observation.pods:
            if time.time() > gone_by:
                left = ", ".join(p["metadata"]["name"] for p in self._observation.pods.values())
                raise LearnerError(f"restart: pods left after {_GONE_SECONDS} s: {left}")
            await subscription.changed(within=1)
        self._observation.forget_learners()
        scaled = await scale(self._api, stateful_set, self._spec.learners)
        self._observation.apply("StatefulSet", "MODIFIED", scaled)
        self._limits.begin_again(time.time())
        self._told.clear()

    async def _keep_positions(self, logs: LogCopier) -> None:
        # What was written before comes in one burst, which is noted soon: it is not to come again.
        for pause in chain([1], repeat(_POSITIONS_SECONDS)):
            await asyncio.sleep(pause)
            if logs.positions != self._noted:
                await self._log_limits.notes.take()
                await self._note_positions(logs)

    async def _note_positions(self, logs: LogCopier) -> None:
        if (positions := dict(logs.positions)) == self._noted:
            return
        try:
            async with asyncio.timeout(_POSITIONS_SECONDS):
                await note_logs(
                    self._api,
                    self._namespace,
                    self._name,
                    uid=self._observation.uid or "",
                    positions=positions,
                    progress=self._progress.curve.to_lines(),
                )
        except (LearnerError, TimeoutError) as e:
            self._log.info("How far the logs were copied could not be noted: %s", e)
        self._noted = positions

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
            namespace=self._namespace,
            gpus=self._spec.gpus,
            trouble=trouble,
            restarts=[*map(dict, self._restarts)],
            curve=self._progress.curve,
            results_uri=self._results_uri,
        )

    async def _hand_over(self) -> None:
        """Leave a training that goes on to others: when the task runs again it starts anew."""
        uid = self._observation.uid or ""
        await mark_reported(self._api, self._namespace, self._name, uid=uid)

    async def _let_go(self, outcome: Outcome) -> None:
        """Delete the objects, or put them to rest; what goes wrong here changes no verdict."""
        namespace, name = self._namespace, self._name
        uid = self._observation.uid or ""
        keep = self._spec.on_finish_action is OnFinish.KEEP or (
            self._spec.on_finish_action is OnFinish.DELETE_ON_SUCCESS
            and outcome["phase"] != Phase.SUCCEEDED
        )
        try:
            if keep:
                if self._observation.stateful_set is not None:
                    note = write_note(outcome)
                    await put_to_rest(self._api, namespace, name, uid=uid, outcome=note)
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
