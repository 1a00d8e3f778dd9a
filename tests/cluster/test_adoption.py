"""A StatefulSet of the training's name is there already: go on with it, replace it or leave it."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider.cluster import client
from airflow_learner_provider.cluster.client import release
from airflow_learner_provider.cluster.wait import look_at_training, wait_for_training
from airflow_learner_provider.exceptions import LearnerError, ObjectConflictError
from dev.airflow.access import Admin
from tests.cluster.core import Core, Gate, abandon, new_owner, next_try, until
from tests.cluster.proxy import Proxy, Request

COMPLETIONS = pytest.mark.parametrize("completion", ["native", "wrapper"])


def steps(count: int) -> str:
    """A command that counts, five steps a second."""
    return f"for step in $(seq {count}); do echo step $step; sleep 0.2; done"


def count_steps(core: Core, ordinal: int = 0) -> list[str]:
    return [line for line in core.log.of_learner(ordinal) if line.startswith("step ")]


def numbered(count: int) -> list[str]:
    return [f"step {number}" for number in range(1, count + 1)]


@COMPLETIONS
async def test_a_triggerer_that_restarts_goes_on_with_the_training_and_its_logs(
    core: Core, wait_until_empty: Callable[[], None], completion: str
) -> None:
    request = core.request(command=steps(30), completion=completion)
    for seen in (3, 12):
        try_ = core.start(request)
        await until(lambda seen=seen: len(count_steps(core)) >= seen)  # type: ignore[misc]
        await abandon(try_)
    outcome = await core.run(request)
    assert outcome["phase"] == "Succeeded"
    assert [row["restarts"] for row in outcome["learners"]] == [0, 0]
    assert [count_steps(core, ordinal) for ordinal in (0, 1)] == [numbered(30)] * 2
    await asyncio.to_thread(wait_until_empty)


@COMPLETIONS
async def test_a_training_that_ended_while_nobody_looked_is_reported(
    core: Core,
    core_api: Any,
    wait_until_empty: Callable[[], None],
    completion: str,
) -> None:
    commands = (
        "printf fine > $LEARNER_RESULT_FILE",
        "[ $LEARNER_ORDINAL = 0 ] || { echo bad; exit 3; }",
    )
    requests = [
        core.request(command=c, owner=new_owner(durable=True), completion=completion)
        for c in commands
    ]
    tries = [core.start(request) for request in requests]
    await until(lambda: len(core_api.list_namespaced_pod(core.namespace).items) == 4)
    await asyncio.gather(*(abandon(try_) for try_ in tries))

    def all_ended() -> bool:
        pods = core_api.list_namespaced_pod(core.namespace).items
        states = [s for pod in pods for s in pod.status.container_statuses or ()]
        ended = [s for s in states if s.state.terminated or s.last_state.terminated]
        return [s.name for s in ended] == ["learner"] * 4

    await until(all_ended)
    outcomes = await asyncio.gather(*(core.run(next_try(request)) for request in requests))
    assert outcomes[0]["phase"] == "Succeeded"
    assert outcomes[0]["result"] == "fine"
    assert "learner 1 ended with exit code 3: bad [ExitCode]" in outcomes[1]["message"]
    folded = ["::group::Last lines of learner 1, which failed first", "bad", "::endgroup::"]
    assert "\n".join(folded) in core.log.text
    await asyncio.to_thread(wait_until_empty)


async def test_two_copies_of_a_trigger_come_to_one_result(
    core: Core, tmp_path: Path, wait_until_empty: Callable[[], None]
) -> None:
    request = core.request(command="sleep 2; echo $LEARNER_ORDINAL > $LEARNER_RESULT_FILE")
    other = core.beside(Path(shutil.copy(core.kubeconfig, tmp_path / "other")))
    one, two = await asyncio.gather(core.run(request), other.run(request))
    assert [one["phase"], two["phase"]] == ["Succeeded", "Succeeded"]
    assert one["learners"] == two["learners"]
    await asyncio.to_thread(wait_until_empty)


async def test_a_new_try_adopts_what_a_dead_worker_left_and_the_old_one_cannot_kill_it(
    core: Core, apps_api: Any, gate: Gate, wait_until_empty: Callable[[], None]
) -> None:
    request = core.request(
        command=f"{steps(20)}; {gate.wait}",
        training_data=gate.store,
        owner=new_owner(durable=True),
        name="goes-on",
    )
    first = core.start(request)
    await until(lambda: len(count_steps(core)) >= 3)
    uid = read_uid(apps_api, core)
    await abandon(first)
    second = core.start(next_try(request))
    await until(lambda: "Adopted StatefulSet" in core.log.text)
    async with core.connect() as connection:
        assert not await release(connection.api, core.namespace, "goes-on", request.owner)
    assert read_uid(apps_api, core) == uid
    gate.open()
    outcome = await second
    assert outcome["phase"] == "Succeeded"
    assert count_steps(core) == numbered(20)
    await asyncio.to_thread(wait_until_empty)


async def test_a_training_that_changes_while_it_is_adopted_is_looked_at_again(
    *,
    core: Core,
    admin: Admin,
    gate: Gate,
    tmp_path: Path,
    wait_until_empty: Callable[[], None],
) -> None:
    path = f"/apis/apps/v1/namespaces/{core.namespace}/statefulsets/changes"
    changed: list[Any] = []

    def change(request: Request) -> None:
        # As the StatefulSet's controller does when it counts the pods.
        if request.method == "PATCH" and b"resourceVersion" in request.body and not changed:
            body = {"metadata": {"annotations": {"example.com/changed": "true"}}}
            how = "application/merge-patch+json"
            changed.append(admin.request("PATCH", path, body=body, content_type=how))

    request = core.request(
        command=gate.wait,
        training_data=gate.store,
        owner=new_owner(durable=True),
        name="changes",
    )
    first = core.start(request)
    await until(lambda: "Created StatefulSet" in core.log.text)
    await abandon(first)
    with Proxy(admin.create_role_kubeconfig(core.namespace)) as proxy:
        proxy.before = change
        kubeconfig = tmp_path / "through-the-proxy"
        kubeconfig.write_text(json.dumps(proxy.kubeconfig))
        other = core.beside(kubeconfig)
        second = other.start(next_try(request))
        await until(lambda: "Adopted StatefulSet" in other.log.text)
        gate.open()
        assert (await second)["phase"] == "Succeeded"
    assert len(changed) == 1
    await asyncio.to_thread(wait_until_empty)


@pytest.mark.parametrize(
    ("durable", "change"),
    [
        pytest.param(False, {}, id="cleared while it was deferred"),
        pytest.param(True, {"env": {"LR": "0.2"}}, id="something else is asked for"),
    ],
)
async def test_a_new_try_replaces_what_it_does_not_want(
    core: Core,
    core_api: Any,
    wait_until_empty: Callable[[], None],
    durable: bool,
    change: dict[str, Any],
) -> None:
    # The old learners take their time to go; the new ones must not run beside them.
    slow = "trap 'sleep 3; exit' TERM; echo old; while :; do sleep 0.1; done"
    request = core.request(command=slow, owner=new_owner(durable=durable), name="again")
    first = core.start(request)
    await until(lambda: "[0] old" in core.log.text)
    await abandon(first)
    old = pod_uids(core_api, core)
    again = core.request(command="echo new", name="again", **change)
    second = core.start(replace(next_try(request), spec=again.spec))
    most = 0
    while not second.done():
        pods = core_api.list_namespaced_pod(core.namespace).items
        most = max(most, len(pods))
        await asyncio.sleep(0.2)
    assert (await second)["phase"] == "Succeeded"
    assert most == 2
    assert "[0] new" in core.log.text
    assert not old & pod_uids(core_api, core)
    await asyncio.to_thread(wait_until_empty)


async def test_a_kept_training_tells_its_outcome_and_is_run_anew(core: Core, apps_api: Any) -> None:
    request = core.request(
        command='printf "{\\"loss\\": 0.1}" > $LEARNER_RESULT_FILE',
        owner=new_owner(durable=True),
        name="kept",
        on_finish_action="keep",
    )
    outcome = await core.run(request)
    assert (outcome["phase"], outcome["result"]) == ("Succeeded", {"loss": 0.1})
    async with core.connect() as connection:
        where = connection, "kept", core.namespace
        looked = await look_at_training(*where, target="completed")
        waited = await wait_for_training(
            *where, target="ready", deadline=time.time() + 10, poke_interval=1
        )
    assert (looked, waited) == (outcome, outcome)
    uid = read_uid(apps_api, core, "kept")
    assert (await core.run(next_try(request)))["phase"] == "Succeeded"
    assert read_uid(apps_api, core, "kept") != uid


async def test_a_predecessor_that_is_being_deleted_is_waited_for(
    *,
    core: Core,
    admin: Admin,
    core_api: Any,
    kubectl: Callable[..., str],
    gate: Gate,
    wait_until_empty: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = f"echo again; {gate.wait}"
    request = core.request(command=command, name="again", training_data=gate.store)
    first = core.start(request)
    await until(lambda: "[1] again" in core.log.text)
    set_finalizers(admin, core, "again-1", ["example.com/hold"])
    how = ("--cascade=foreground", "--wait=false")
    kubectl("delete", "statefulset", "again", "-n", core.namespace, *how)
    await abandon(first)
    await until(lambda: len(pod_uids(core_api, core)) == 1)

    monkeypatch.setattr(client, "_GONE_SECONDS", 2)
    with pytest.raises(LearnerError, match=r"still being deleted after 2 s .*pods left: again-1\)"):
        await core.run(next_try(request))
    monkeypatch.setattr(client, "_GONE_SECONDS", 60)
    old = pod_uids(core_api, core)
    second = core.start(next_try(request))
    await asyncio.sleep(2)
    assert pod_uids(core_api, core) == old
    set_finalizers(admin, core, "again-1", [])
    gate.open()
    assert (await second)["phase"] == "Succeeded"
    await asyncio.to_thread(wait_until_empty)


@pytest.mark.parametrize("kind", ["StatefulSet", "Service"])
async def test_an_object_of_somebody_else_is_left_as_it_is(
    core: Core,
    kubectl: Callable[..., str],
    leftovers: Callable[[str], list[str]],
    kind: str,
) -> None:
    labels = {"app": "theirs"}
    container = {"name": "main", "image": core.image}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    specs = {
        "StatefulSet": {
            "replicas": 0,
            "serviceName": "theirs",
            "selector": {"matchLabels": labels},
            "template": template,
        },
        "Service": {"clusterIP": "None", "selector": labels},
    }
    version = {"StatefulSet": "apps/v1", "Service": "v1"}[kind]
    theirs = {"apiVersion": version, "kind": kind, "metadata": {"name": "taken"}}
    where = ("-n", core.namespace)
    kubectl("create", *where, "-f", "-", stdin=json.dumps(theirs | {"spec": specs[kind]}))
    before = kubectl("get", kind, "taken", *where, "-o", "jsonpath={.metadata.resourceVersion}")
    left = leftovers(core.namespace)
    with pytest.raises(ObjectConflictError, match=f"{kind} {core.namespace}/taken exists"):
        await core.run(core.request(command="true", name="taken"))
    after = kubectl("get", kind, "taken", *where, "-o", "jsonpath={.metadata.resourceVersion}")
    assert after == before
    await until(lambda: leftovers(core.namespace) == left)


async def test_a_training_of_another_task_is_left_to_it(
    core: Core, gate: Gate, wait_until_empty: Callable[[], None]
) -> None:
    command = f"echo up; {gate.wait}"
    request = core.request(command=command, name="shared", training_data=gate.store)
    first = core.start(request)
    await until(lambda: "[0] up" in core.log.text)
    with pytest.raises(ObjectConflictError, match="is not this task's; give the training another"):
        await core.run(core.request(command="sleep 3", name="shared"))
    gate.open()
    assert (await first)["phase"] == "Succeeded"
    await asyncio.to_thread(wait_until_empty)


def read_uid(apps_api: Any, core: Core, name: str = "goes-on") -> str:
    found = apps_api.read_namespaced_stateful_set(name, core.namespace)
    return str(found.metadata.uid)


def pod_uids(core_api: Any, core: Core) -> set[str]:
    return {p.metadata.uid for p in core_api.list_namespaced_pod(core.namespace).items}


def set_finalizers(admin: Admin, core: Core, pod: str, finalizers: list[str]) -> None:
    admin.request(
        "PATCH",
        f"/api/v1/namespaces/{core.namespace}/pods/{pod}",
        body={"metadata": {"finalizers": finalizers}},
        content_type="application/merge-patch+json",
    )
