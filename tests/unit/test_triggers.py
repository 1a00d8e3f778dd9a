"""What ends a training whose task is deferred, and what does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from airflow_learner_provider import triggers
from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.request import TrainingRequest
from airflow_learner_provider.training.spec import parse_training_spec

OWNER = Owner("digits", "train", "run", -1, 1, "id", durable=False)
SPEC = parse_training_spec({"learners": 2, "image": "digits:1", "command": "train"})
TRAINING = TrainingRequest(SPEC, OWNER, None, "1").to_json()


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is deleted, in place of a cluster."""
    names: list[str] = []

    async def release(training: Any, kubernetes_conn_id: str) -> None:
        names.append(kubernetes_conn_id)

    monkeypatch.setattr(triggers, "release_training", release)
    return names


async def cancel_while_it_runs(
    trigger: triggers.LearnerTrigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = asyncio.Event()

    async def wait(_: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(triggers, "aread_accounts", wait)
    running = asyncio.ensure_future(anext(trigger.run()))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    ("has_kill_hook", "state", "expected"),
    [
        pytest.param(False, "failed", ["learners"], id="a user has ended the task"),
        pytest.param(False, None, ["learners"], id="a user has cleared the task"),
        pytest.param(False, "deferred", [], id="the triggerer stops"),
        pytest.param(True, "failed", [], id="the kill hook does it"),
    ],
)
async def test_cleanup_deletes_only_where_there_is_no_kill_hook(
    *,
    monkeypatch: pytest.MonkeyPatch,
    released: list[str],
    has_kill_hook: bool,
    state: str | None,
    expected: list[str],
) -> None:
    hook = BaseTrigger.cleanup  # any coroutine function
    if has_kill_hook:
        monkeypatch.setattr(BaseTrigger, "on_kill", hook, raising=False)
    else:
        monkeypatch.delattr(BaseTrigger, "on_kill", raising=False)
    monkeypatch.setattr(triggers, "_read_task_state", lambda _: state)
    trigger = triggers.LearnerTrigger(TRAINING, "learners")
    await cancel_while_it_runs(trigger, monkeypatch)
    await trigger.cleanup()
    assert released == expected


async def test_training_stays_when_nobody_tells_the_tasks_state(
    monkeypatch: pytest.MonkeyPatch, released: list[str]
) -> None:
    def ask(_: Any) -> None:
        raise ConnectionResetError("the supervisor is gone")

    monkeypatch.setattr(triggers, "_read_task_state", ask)
    trigger = triggers.LearnerTrigger(TRAINING, "learners")
    with pytest.raises(ConnectionResetError):
        await trigger.on_kill()
    assert released == []


async def test_cleanup_leaves_a_training_alone_whose_trigger_was_not_cancelled(
    monkeypatch: pytest.MonkeyPatch, released: list[str]
) -> None:
    monkeypatch.delattr(BaseTrigger, "on_kill", raising=False)
    await triggers.LearnerTrigger(TRAINING, "learners").cleanup()
    assert released == []
