"""What runs in the triggerer: the same coroutine as in a worker."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, conf
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from airflow_learner_provider.exceptions import (
    InvalidSpecError,
    LearnerError,
    ObjectConflictError,
)
from airflow_learner_provider.hooks import LearnerHook, aread_accounts
from airflow_learner_provider.reporting import report_progress

if TYPE_CHECKING:
    from airflow_learner_provider.training.outcome import Outcome
    from airflow_learner_provider.training.request import TrainingRequest

# From a task's deferral until its worker and the executor's report of it are gone, beside the
# worker's own interval.
_REPORT_SECONDS = 2
# A triggerer that stops may have nobody left to ask for a task's state.
_STATE_SECONDS = 20
# Where the operators are that hand their outcome on as it is.
_PLAIN = {"airflow_learner_provider.operators", "airflow_learner_provider.sensors"}


class _EndingTrigger(BaseTrigger):
    """Ends its task as soon as it may.

    :param end_from_trigger: whether a success ends the task here, without a worker.
    :param do_xcom_push: whether the outcome is pushed then.
    :param resume_from: Unix time in seconds before which no event sends the task to a worker.
    """

    def __init__(
        self, *, end_from_trigger: bool = False, do_xcom_push: bool = True, resume_from: float = 0
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.end_from_trigger = end_from_trigger
        self.do_xcom_push = do_xcom_push
        self.resume_from = resume_from
        self._was_cancelled = False

    @property
    def ending(self) -> dict[str, Any]:
        """The arguments above, for `serialize`."""
        names = ("end_from_trigger", "do_xcom_push", "resume_from")
        return {name: getattr(self, name) for name in names}

    @abstractmethod
    async def _find_outcome(self) -> tuple[Outcome | None, str]:
        """Return the outcome, None when the time is up, and what it was to reach."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the outcome, {"timeout": True}, or the error that kept it from having one."""
        try:
            outcome, target = await self._find_outcome()
        except asyncio.CancelledError:
            self._was_cancelled = True
            raise
        except Exception as e:
            if not isinstance(e, LearnerError):
                self.log.exception("No outcome can be had")
            event: dict[str, Any] = {"error": type(e).__name__, "message": str(e)}
        else:
            if outcome is not None and await self._may_end_here(outcome, target):
                yield TaskSuccessEvent()
                return
            event = {"timeout": True} if outcome is None else {"outcome": outcome}
        await asyncio.sleep(max(self.resume_from - time.time(), 0))
        yield TriggerEvent(event)

    async def _may_end_here(self, outcome: Outcome, target: str) -> bool:
        """Tell whether no worker is needed any more; the outcome is pushed then."""
        from airflow_learner_provider.training.outcome import find_error

        if not self.end_from_trigger or find_error(outcome, target=target) is not None:
            return False
        if self.do_xcom_push:
            try:
                await asyncio.to_thread(self._push, outcome)
            except Exception:
                self.log.exception("The outcome cannot be pushed here: a worker will do it")
                return False
        return True

    def _push(self, outcome: Outcome) -> None:
        # Not as part of the event: that (seen in 3.3.2) makes a text of it.
        from airflow.sdk.execution_time.xcom import XCom

        ti: Any = self.task_instance
        where = {name: getattr(ti, name) for name in ("dag_id", "task_id", "run_id", "map_index")}
        XCom.set(key=XCom.XCOM_RETURN_KEY, value=outcome, **where)


def plan_ending(operator: BaseOperator) -> dict[str, Any]:
    """Decide, in the worker, how the trigger of a task ends it; see `docs/performance.md`.

    A success ends the task in the triggerer where a worker would have nothing more to do.

    :return: the arguments of the trigger that are about this.
    """
    # Airflow (seen in 3.3.2) fails a task that is queued again before the executor has reported
    # that the worker which deferred it is gone. The worker notices its end after this interval.
    seconds = conf.getint("workers", "min_heartbeat_interval", fallback=5) + _REPORT_SECONDS
    return {
        "end_from_trigger": not _is_worker_needed(operator),
        "do_xcom_push": operator.do_xcom_push,
        "resume_from": time.time() + seconds,
    }


def _is_worker_needed(operator: BaseOperator) -> bool:
    """Tell whether Airflow does something in a worker when a task of this operator succeeds."""
    from airflow.sdk.listener import get_listener_manager

    return (
        bool(operator.outlets or getattr(operator, "artifacts", None))  # asset events
        or bool(operator.on_success_callback)
        or operator._post_execute_hook is not None  # noqa: SLF001 - where Airflow keeps it
        or operator.map_index_template is not None  # rendered again with what the task found
        or operator.multiple_outputs  # one XCom for each key
        or any(True for _ in operator.iter_mapped_dependants())  # need the XCom's length
        or get_listener_manager().has_listeners  # OpenLineage, for instance
        or type(operator).__module__ not in _PLAIN  # a subclass may do anything
    )


class LearnerTrigger(_EndingTrigger):
    """Runs a training from created to ended.

    A triggerer that restarts runs this again, and it adopts what is there. Only `on_kill` deletes;
    `cleanup` also runs at every restart of a triggerer, so that before Airflow 3.3, where there is
    nothing else, the task's state has to tell what is meant.

    :param training: what is run, as plain JSON; see `training.request.TrainingRequest`.
    :param kubernetes_conn_id: id of the connection; credentials are read where this runs.
    :param ending: how it ends its task, as `plan_ending` says.
    """

    def __init__(self, training: dict[str, Any], kubernetes_conn_id: str, **ending: Any) -> None:
        super().__init__(**ending)
        self.training = training
        self.kubernetes_conn_id = kubernetes_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        arguments = {"training": self.training, "kubernetes_conn_id": self.kubernetes_conn_id}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments | self.ending

    async def _find_outcome(self) -> tuple[Outcome | None, str]:
        await asyncio.to_thread(_import_cluster)
        from airflow_learner_provider.cluster.connection import connect
        from airflow_learner_provider.cluster.follow import run_training

        training = _parse(self.training)
        accounts = await aread_accounts(training.spec.connection_ids)
        read_settings = LearnerHook(self.kubernetes_conn_id).aget_conn
        async with connect(await read_settings(), read_settings) as connection:
            report = partial(report_progress, training.owner)
            outcome = await run_training(
                connection, training, self.log, accounts=accounts, report=report
            )
        return outcome, training.spec.wait_until

    async def on_kill(self) -> None:
        """Delete the training: a user marked the task failed or successful, or cleared it."""
        releasing = asyncio.ensure_future(self._release())
        # Airflow (seen in 3.3.2) cancels this as well, once a second until it is over.
        while not releasing.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([releasing])
        await releasing

    async def cleanup(self) -> None:
        """Do what `on_kill` does where Airflow, before 3.3, does not know that."""
        if self._was_cancelled and not hasattr(BaseTrigger, "on_kill"):
            await self.on_kill()

    async def _release(self) -> None:
        # Airflow (seen in 3.3.2) also kills the trigger of a triggerer that hung for a while, when
        # another one has taken over. The task is still deferred then, or anew: a task that was
        # cleared replaces by itself what this try leaves.
        async with asyncio.timeout(_STATE_SECONDS):
            state = await asyncio.to_thread(_read_task_state, self.training["owner"])
        if state == "deferred":
            self.log.info("The task is deferred: its training is left to whoever follows it now")
            return
        await release_training(self.training, self.kubernetes_conn_id)


def _read_task_state(owner: Mapping[str, Any]) -> str | None:
    """Ask Airflow for the state of a task; None when it has none, or is not there any more."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    task_id, run_id, map_index = owner["task_id"], owner["run_id"], owner["map_index"]
    states = RuntimeTaskInstance.get_task_states(
        owner["dag_id"], map_index=map_index, task_ids=[task_id], run_ids=[run_id]
    )
    key = task_id if map_index < 0 else f"{task_id}_{map_index}"
    state: str | None = states.get(run_id, {}).get(key)
    return state


def read_event(event: Mapping[str, Any] | None) -> Outcome:
    """Return the outcome that a trigger's event carries.

    :raises AirflowFailException: the training cannot be had, however often it is tried.
    :raises LearnerError: the trigger came to no outcome, or the event cannot be understood.
    """
    if event is not None and "outcome" in event:
        outcome: Outcome = event["outcome"]
        return outcome
    if event is None or "error" not in event:
        raise LearnerError("the trigger's event carries no outcome")
    if event["error"] in {InvalidSpecError.__name__, ObjectConflictError.__name__}:
        raise AirflowFailException(event["message"])
    raise LearnerError(f"{event['error']}: {event['message']}")


async def release_training(training: dict[str, Any], kubernetes_conn_id: str) -> None:
    """Delete a training's objects, unless another try holds them by now."""
    await asyncio.to_thread(_import_cluster)
    from airflow_learner_provider.cluster.client import release
    from airflow_learner_provider.cluster.connection import connect

    parsed = _parse(training)
    async with connect(await LearnerHook(kubernetes_conn_id).aget_conn()) as connection:
        namespace = parsed.spec.namespace or (await connection.api.credentials()).namespace
        # A create call that was under way when the task was cancelled may land a moment later.
        for _ in range(2):
            if await release(connection.api, namespace, parsed.name, parsed.owner):
                return
            await asyncio.sleep(1)


def _import_cluster() -> None:
    """Import what takes seconds the first time; in a thread, for the event loop serves others."""
    import airflow_learner_provider.cluster.follow
    import airflow_learner_provider.cluster.wait  # noqa: F401


def _parse(training: dict[str, Any]) -> TrainingRequest:
    from airflow_learner_provider.training.request import TrainingRequest

    return TrainingRequest.from_json(training)


class LearnerStatefulSetTrigger(_EndingTrigger):
    """Waits for a training that another task made.

    :param name: name of the StatefulSet.
    :param namespace: its namespace; None is the connection's.
    :param target: "ready" or "completed".
    :param deadline: Unix time in seconds at which the wait is over.
    :param poke_interval: seconds between looks at a StatefulSet that cannot be watched.
    :param kubernetes_conn_id: id of the connection.
    :param ending: how it ends its task, as `plan_ending` says.
    """

    def __init__(
        self,
        *,
        name: str,
        namespace: str | None,
        target: str,
        deadline: float,
        poke_interval: float,
        kubernetes_conn_id: str,
        **ending: Any,
    ) -> None:
        super().__init__(**ending)
        self.name = name
        self.namespace = namespace
        self.target = target
        self.deadline = deadline
        self.poke_interval = poke_interval
        self.kubernetes_conn_id = kubernetes_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        names = ("name", "namespace", "target", "deadline", "poke_interval", "kubernetes_conn_id")
        arguments = {name: getattr(self, name) for name in names}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments | self.ending

    async def _find_outcome(self) -> tuple[Outcome | None, str]:
        await asyncio.to_thread(_import_cluster)
        from airflow_learner_provider.cluster.connection import connect
        from airflow_learner_provider.cluster.wait import wait_for_training

        read_settings = LearnerHook(self.kubernetes_conn_id).aget_conn
        async with connect(await read_settings(), read_settings) as connection:
            outcome = await wait_for_training(
                connection,
                self.name,
                self.namespace,
                target=self.target,
                deadline=self.deadline,
                poke_interval=self.poke_interval,
            )
        return outcome, self.target
