"""Where a deferred task ends: in the triggerer only if a worker has nothing left to do."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.listener import get_listener_manager
from airflow.triggers.base import TaskSuccessEvent, TriggerEvent

from airflow_learner_provider.exceptions import LearnerError, TrainingKilledError
from airflow_learner_provider.operators import LearnerStatefulSetOperator
from airflow_learner_provider.sensors import LearnerStatefulSetSensor
from airflow_learner_provider.triggers import LearnerTrigger, plan_ending


class UsersOperator(LearnerStatefulSetOperator):
    pass


def operator(
    kind: type[LearnerStatefulSetOperator] = LearnerStatefulSetOperator, **more: Any
) -> LearnerStatefulSetOperator:
    with DAG("ending", schedule=None):
        return kind(task_id="train", learners=1, image="busybox", command="true", **more)


def ends_in_triggerer(task: LearnerStatefulSetOperator) -> bool:
    return bool(plan_ending(task)["end_from_trigger"])


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({}, True, id="nothing special"),
        pytest.param({"retries": 2}, True, id="retries are for failures"),
        pytest.param({"on_failure_callback": print}, True, id="a callback on failure"),
        pytest.param({"on_retry_callback": print}, True, id="a callback on retry"),
        pytest.param({"do_xcom_push": False}, True, id="no XCom"),
        pytest.param({"inlets": [Asset("data")]}, True, id="inlets"),
        pytest.param({"pool": "gpus", "pool_slots": 2}, True, id="a pool"),
        pytest.param({"outlets": [Asset("model")]}, False, id="outlets"),
        pytest.param({"artifacts": ["model.npz"]}, False, id="artifacts"),
        pytest.param({"on_success_callback": print}, False, id="a callback on success"),
        pytest.param({"post_execute": print}, False, id="a hook after execution"),
        pytest.param({"map_index_template": "{{ 1 }}"}, False, id="a name for a map index"),
        pytest.param({"multiple_outputs": True}, False, id="an XCom for each key"),
    ],
)
def test_task_ends_in_triggerer_if_a_worker_has_nothing_to_do(
    more: dict[str, Any], expected: bool
) -> None:
    assert ends_in_triggerer(operator(**more)) is expected


def test_task_of_a_subclass_ends_in_a_worker() -> None:
    assert not ends_in_triggerer(operator(UsersOperator))


def test_task_that_others_are_mapped_over_ends_in_a_worker() -> None:
    train = operator()
    with train.dag:
        LearnerStatefulSetSensor.partial(task_id="each").expand(name=train.output)
    assert not ends_in_triggerer(train)


def test_task_that_listeners_hear_of_ends_in_a_worker() -> None:
    listener = Mock(spec=[])
    get_listener_manager().pm.register(listener)
    try:
        assert not ends_in_triggerer(operator())
    finally:
        get_listener_manager().pm.unregister(listener)


async def fire(monkeypatch: pytest.MonkeyPatch, found: Any, **ending: Any) -> TriggerEvent:
    """Return the event of a trigger that found this."""

    async def find(_: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found, "completed"

    monkeypatch.setattr(LearnerTrigger, "_find_outcome", find)
    (event,) = [event async for event in LearnerTrigger({}, "c", **ending).run()]
    return event


async def test_only_a_success_ends_a_task_in_the_triggerer(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"end_from_trigger": True, "do_xcom_push": False}
    succeeded, unfinished = {"phase": "Succeeded"}, {"phase": "Running"}
    assert await fire(monkeypatch, succeeded, **here) == TaskSuccessEvent()
    assert await fire(monkeypatch, unfinished, **here) == TriggerEvent({"outcome": unfinished})
    assert (await fire(monkeypatch, LearnerError("no"), **here)).payload["message"] == "no"


async def test_outcome_that_cannot_be_pushed_in_the_triggerer_is_pushed_by_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = {"phase": "Succeeded"}  # no task instance is known, so the push fails
    event = await fire(monkeypatch, outcome, end_from_trigger=True, do_xcom_push=True)
    assert event == TriggerEvent({"outcome": outcome})


async def test_no_task_goes_back_to_a_worker_before_the_first_one_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = time.time()
    plan = plan_ending(operator())
    assert before + 7 <= plan["resume_from"] <= time.time() + 7  # 5 s is Airflow's default
    soon = time.time() + 0.2
    await fire(monkeypatch, LearnerError("at once"), resume_from=soon)
    assert time.time() >= soon


def test_time_limit_before_the_training_was_created_is_not_told_as_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = operator(deferrable=False)
    monkeypatch.setattr(task, "build_request", Mock())
    monkeypatch.setattr(task, "_run_here", Mock())
    monkeypatch.setattr(asyncio, "run", Mock(side_effect=AirflowTaskTimeout))
    try:
        task.execute({"ti": Mock()})
    except AirflowTaskTimeout:
        task.on_kill()  # as Airflow does, which then raises the error again
    with pytest.raises(TrainingKilledError, match="before its training was created"):
        task.on_kill()
