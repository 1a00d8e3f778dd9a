"""Sensor: wait for a training that another task made."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowSkipException

from airflow_learner_provider.exceptions import InvalidSpecError, LearnerError
from airflow_learner_provider.hooks import DEFAULT_CONN_ID, LearnerHook
from airflow_learner_provider.triggers import LearnerStatefulSetTrigger, plan_ending, read_event

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_learner_provider.training.outcome import Outcome

_TARGETS = ("ready", "completed")


class LearnerStatefulSetSensor(BaseSensorOperator):
    """Waits until a StatefulSet of learners is ready, or until its training is completed.

    A training that fails fails the sensor at once, `soft_fail` or not; so do missing rights. One
    that does not exist yet is waited for. The outcome is the same in poke, reschedule and
    deferrable mode.

    :param name: name of the StatefulSet.
    :param namespace: its namespace; by default the connection's, then the context's or the pod's.
    :param target: "ready" or "completed".
    :param kubernetes_conn_id: connection of type `kubernetes`.
    :param deferrable: wait in the triggerer; default from `[operators] default_deferrable`.
    """

    template_fields: Sequence[str] = ("name", "namespace", "target", "kubernetes_conn_id")
    ui_color = "#dbe9ff"

    def __init__(
        self,
        *,
        name: str,
        namespace: str | None = None,
        target: str = "ready",
        kubernetes_conn_id: str = DEFAULT_CONN_ID,
        poke_interval: float = 5,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.name = name
        self.namespace = namespace
        self.target = target
        self.kubernetes_conn_id = kubernetes_conn_id
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        """Wait, here or in the triggerer; return the outcome as far as it is known."""
        if self.target not in _TARGETS:
            raise InvalidSpecError(f"target: should be one of {', '.join(_TARGETS)}")
        if not self.name:
            raise InvalidSpecError("name: should be the name of a StatefulSet")
        if not self.deferrable:
            return super().execute(context)
        started = context["ti"].start_date
        if started is None:
            raise LearnerError("the task instance has no start date")
        self.defer(
            trigger=LearnerStatefulSetTrigger(
                name=self.name,
                namespace=self.namespace,
                target=self.target,
                deadline=started.timestamp() + self.timeout,
                poke_interval=self.poke_interval,
                kubernetes_conn_id=self.kubernetes_conn_id,
                **plan_ending(self),
            ),
            method_name="execute_complete",
        )
        return None  # not reached: defer() raises

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        outcome = asyncio.run(self._look())
        if outcome is None:
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value=self._conclude(outcome))

    def execute_complete(self, context: Context, event: Mapping[str, Any] | None) -> Outcome:
        """Turn the trigger's event into the outcome of the task."""
        if event == {"timeout": True}:
            said = f"{self.name} is not {self.target} after {self.timeout:.0f} s"
            if self.soft_fail:
                raise AirflowSkipException(said)
            raise AirflowSensorTimeout(said)
        return self._conclude(read_event(event))

    async def _look(self) -> Outcome | None:
        from airflow_learner_provider.cluster.connection import connect
        from airflow_learner_provider.cluster.wait import look_at_training

        settings = await asyncio.to_thread(LearnerHook(self.kubernetes_conn_id).get_conn)
        async with connect(settings) as connection:
            return await look_at_training(connection, self.name, self.namespace, target=self.target)

    def _conclude(self, outcome: Outcome) -> Outcome:
        from airflow_learner_provider.training.outcome import find_error

        error = find_error(outcome, target=self.target)
        if error is None:
            return outcome
        raise error
