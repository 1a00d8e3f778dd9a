"""What Airflow itself makes of the policy; `docs/reasons.md` tells users the same."""

import sys
from collections.abc import Mapping
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from airflow.sdk import DAG, ExceptionRetryPolicy
from airflow.sdk.definitions.retry_policy import RetryDecision
from airflow.sdk.execution_time.task_runner import _evaluate_retry_policy
from airflow.serialization.serialized_objects import DagSerialization

from airflow_learner_provider.exceptions import ApiError, LearnerError
from airflow_learner_provider.operators import LearnerStatefulSetOperator
from airflow_learner_provider.retry import TRAINING_RETRY_POLICY
from airflow_learner_provider.training.diagnosis import Reason
from airflow_learner_provider.training.outcome import ERRORS

FAILS = ("fail", None)
AT_ONCE = ("retry", timedelta(0))
LATER = ("retry", timedelta(minutes=5))
AS_THE_TASK_SAYS = ("default", None)

DECISIONS: Mapping[Reason, tuple[str, timedelta | None]] = {
    Reason.EXIT_CODE: AS_THE_TASK_SAYS,
    Reason.SIGNAL: AS_THE_TASK_SAYS,
    Reason.OOM_KILLED: FAILS,
    Reason.IMAGE_NAME: FAILS,
    Reason.IMAGE_NOT_FOUND: FAILS,
    Reason.IMAGE_DENIED: FAILS,
    Reason.IMAGE_UNAVAILABLE: FAILS,
    Reason.CONTAINER_CONFIG: FAILS,
    Reason.CRASH_LOOP: LATER,
    Reason.INIT_CONTAINER: AS_THE_TASK_SAYS,
    Reason.EVICTED: AT_ONCE,
    Reason.PREEMPTED: AT_ONCE,
    Reason.NODE_LOST: AT_ONCE,
    Reason.NODE_NOT_READY: AT_ONCE,
    Reason.UNSCHEDULABLE: LATER,
    Reason.QUOTA: LATER,
    Reason.ADMISSION: FAILS,
    Reason.SERVICE_ACCOUNT: FAILS,
    Reason.VOLUME_NOT_FOUND: FAILS,
    Reason.VOLUME: LATER,
    Reason.NOT_READY: LATER,
    Reason.DELETED: AS_THE_TASK_SAYS,
    Reason.SCALED: AS_THE_TASK_SAYS,
    Reason.ARTIFACTS: AS_THE_TASK_SAYS,
    Reason.TIMEOUT: AS_THE_TASK_SAYS,
    Reason.KILLED: AS_THE_TASK_SAYS,
}


def evaluate(error: LearnerError) -> RetryDecision:
    """Let Airflow's task runner decide about a task that failed with an error."""
    task = SimpleNamespace(retry_policy=TRAINING_RETRY_POLICY)
    ti = SimpleNamespace(task=task, try_number=1, _ti_context_from_server=None)
    decision = _evaluate_retry_policy(cast(Any, ti), error, structlog.get_logger())
    assert decision is not None
    return decision


@pytest.mark.parametrize("reason", Reason)
def test_airflow_decides_by_the_reason(reason: Reason) -> None:
    decision = evaluate(ERRORS[reason]("said"))
    assert (decision.action.value, decision.retry_delay) == DECISIONS[reason]


def test_error_of_the_api_follows_the_task_s_own_retries() -> None:
    assert evaluate(ApiError("no answer")).action.value == "default"


def test_policy_survives_serialization() -> None:
    serialized = TRAINING_RETRY_POLICY.serialize()
    assert ExceptionRetryPolicy.deserialize(serialized).serialize() == serialized
    with DAG("digits", schedule=None) as dag:
        LearnerStatefulSetOperator(
            task_id="train",
            learners=1,
            command="true",
            image="digits:1",
            retries=3,
            retry_policy=TRAINING_RETRY_POLICY,
        )
    task = DagSerialization.from_dict(DagSerialization.to_dict(dag)).get_task("train")
    assert task.has_retry_policy


def test_airflow_without_retry_policies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "airflow_learner_provider.retry")
    monkeypatch.setitem(sys.modules, "airflow.sdk", ModuleType("airflow.sdk"))
    with pytest.raises(ImportError, match=r"needs Airflow 3\.3 or later"):
        import airflow_learner_provider.retry  # noqa: F401
