"""Endings that only a real cluster brings about, each with its verdict."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider.cluster import client, follow, watch
from airflow_learner_provider.cluster.wait import wait_for_training
from airflow_learner_provider.exceptions import LearnerDisruptedError
from airflow_learner_provider.training.outcome import build_error
from airflow_learner_provider.training.pruning import prune
from dev.airflow.access import Admin
from tests.cluster.core import MEET, Core, abandon, meanwhile, new_owner, next_try, until

POLITE = "trap 'exit 0' TERM; sleep 600 & wait"


def forget_ends(kind: str, obj: dict[str, Any]) -> Any:
    """Keep what a watch brought, but for how containers ended."""
    kept: Any = prune(kind, obj)
    for status in kept["status"].get("containerStatuses", ()) if kind == "Pod" else ():
        status.pop("lastState", None)
        if "terminated" in status["state"]:
            status["state"] = {"waiting": {}}
    return kept


def is_running(admin: Admin, namespace: str, pod: str, *, other_than: str = "") -> str:
    """The uid of a pod of that name if its learner runs, else nothing."""
    for found in admin.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]:
        statuses = found["status"].get("containerStatuses") or ()
        runs = any(s["name"] == "learner" and "running" in s["state"] for s in statuses)
        uid: str = found["metadata"]["uid"]
        if found["metadata"]["name"] == pod and runs and uid != other_than:
            return uid
    return ""


async def test_learner_that_ends_politely_when_it_is_evicted_has_not_succeeded(
    core: Core, admin: Admin
) -> None:
    request = core.request(name="evicted", learners=1, command=POLITE)
    path = f"/api/v1/namespaces/{core.namespace}/pods/evicted-0/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted-0"}}
    async with meanwhile(core.run(request)) as run:
        await until(lambda: is_running(admin, core.namespace, "evicted-0"))
        await asyncio.to_thread(admin.request, "POST", path, body=eviction)
        outcome = await run
    assert (outcome["phase"], outcome["reason"]) == ("Failed", "Evicted")
    assert isinstance(build_error(outcome), LearnerDisruptedError)


async def test_learner_that_was_replaced_while_nobody_watched_has_lost_its_work(
    core: Core, admin: Admin
) -> None:
    request = core.request(name="replaced", command=POLITE)
    async with meanwhile(core.run(request)):
        first = await until(lambda: is_running(admin, core.namespace, "replaced-1"))
    # Nobody follows it now, as when a triggerer is down.
    path = f"/api/v1/namespaces/{core.namespace}/pods/replaced-1"
    await asyncio.to_thread(admin.request, "DELETE", path)
    await until(lambda: is_running(admin, core.namespace, "replaced-1", other_than=first))
    outcome = await core.run(request)
    assert (outcome["phase"], outcome["reason"]) == ("Failed", "Deleted")
    assert "learner 1 an earlier pod replaced-1 was deleted while it ran" in outcome["message"]


async def test_learners_that_only_a_later_try_starts_have_all_their_time_to_start(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: Any) -> Any:
        raise asyncio.CancelledError

    request = core.request(owner=new_owner(durable=True), command="true")
    with monkeypatch.context() as patch, suppress(asyncio.CancelledError):
        patch.setattr(client, "scale", die)
        await core.start(request)
    # The worker that created it died so long ago that its start-up deadline is over.
    monkeypatch.setattr(follow, "find_beginning", lambda _: 0)
    outcome = await core.run(next_try(request))
    assert (outcome["phase"], outcome["message"]) == ("Succeeded", "")
    assert "Adopted StatefulSet" in core.log.text


async def test_learner_that_failed_first_is_named_and_the_others_are_collateral(
    core: Core, tmp_path: Path
) -> None:
    command = (
        MEET + '[ "$LEARNER_ORDINAL" = 1 ] && { echo no data > "$LEARNER_RESULT_FILE"; exit 7; }\n'
        '[ "$LEARNER_ORDINAL" = 2 ] && { sleep 1; kill -ABRT $$; }\n'
        "sleep 600"
    )
    results = {"type": "host_mount", "host_path": str(tmp_path)}
    outcome: dict[str, Any] = dict(await core.run(learners=3, command=command, results=results))
    assert "learner 1 ended with exit code 7: no data [ExitCode]" in outcome["message"]
    told = ("exit_code", "signal", "reason", "collateral")
    assert [tuple(row[key] for key in told) for row in outcome["learners"]] == [
        (None, None, None, False),
        (7, None, "ExitCode", False),
        (134, "SIGABRT", "Signal", True),
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, ("Succeeded", "", {"loss": 1})), (3, ("Failed", "ExitCode", None))],
)
async def test_how_a_learner_ended_is_known_when_its_pods_status_has_lost_it(
    core: Core, monkeypatch: pytest.MonkeyPatch, code: int, expected: tuple[str, str, Any]
) -> None:
    # Kubelet's garbage collection takes the container that ended for the one before when it comes
    # just after its successor was created.
    monkeypatch.setattr(watch, "prune", forget_ends)
    command = f"""echo '{{"loss": 1}}' > "$LEARNER_RESULT_FILE"; exit {code}"""
    request = core.request(learners=1, command=command, completion="wrapper")
    training = core.start(request)
    await until(lambda: "Created" in core.log.text)
    await abandon(training)
    async with core.connect() as other:
        seen = await wait_for_training(
            other,
            request.name,
            core.namespace,
            target="completed",
            deadline=time.time() + 60,
            poke_interval=60,
        )
    for outcome in (seen, await core.run(next_try(request))):
        assert outcome is not None
        assert (outcome["phase"], outcome["reason"], outcome["result"]) == expected
        assert [row["exit_code"] for row in outcome["learners"]] == [code]
