"""Faults that neighbouring tools have had, on a real cluster; docs/known-faults.md lists them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider import triggers
from airflow_learner_provider.cluster import follow
from airflow_learner_provider.cluster.client import delete_training
from airflow_learner_provider.cluster.wait import wait_for_training
from airflow_learner_provider.training.objects import build_objects
from dev.airflow.access import Admin
from tests.cluster.core import MEET, Core, Gate, meanwhile, new_owner, until

NEVER_READY = {"exec": {"command": ["false"]}, "periodSeconds": 1}


def learner(**container: Any) -> dict[str, Any]:
    """A pod template with more for the learner's container."""
    return {"spec": {"containers": [{"name": "learner", **container}]}}


def read_pods(admin: Admin, namespace: str) -> dict[str, Any]:
    """Pods of a namespace by their names."""
    pods = admin.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {pod["metadata"]["name"]: pod for pod in pods}


def container_of(admin: Admin, namespace: str, pod: str, name: str) -> dict[str, Any]:
    """Status of a container by its name; empty while there is none."""
    statuses = read_pods(admin, namespace).get(pod, {}).get("status", {}).get("containerStatuses")
    return next((each for each in statuses or () if each["name"] == name), {})


def is_running(admin: Admin, namespace: str, pod: str) -> bool:
    """Whether a pod's learner runs."""
    return "running" in container_of(admin, namespace, pod, "learner").get("state", {})


def hold(admin: Admin, namespace: str, pod: str, *, held: bool = True) -> None:
    """Keep a pod from going with a finalizer of somebody else's, or let it go."""
    finalizers = ["example.com/held"] if held else []
    admin.request(
        "PATCH",
        f"/api/v1/namespaces/{namespace}/pods/{pod}",
        body={"metadata": {"finalizers": finalizers}},
        content_type="application/merge-patch+json",
    )


def list_endpoints(admin: Admin, namespace: str, service: str) -> set[str]:
    """Host names that a Service publishes."""
    slices = admin.request(
        "GET",
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
        query={"labelSelector": f"kubernetes.io/service-name={service}"},
    )["items"]
    return {
        endpoint["hostname"]
        for each in slices
        for endpoint in each["endpoints"] or ()
        if endpoint["addresses"]
    }


async def test_peers_are_published_before_they_are_ready_under_the_longest_name(
    core: Core, admin: Admin, gate: Gate, wait_until_empty: Callable[[], None]
) -> None:
    name = "n" * 52
    request = core.request(
        name=name,
        # With the name of the first learner, which is longer than a label of a name may be.
        command="until nslookup $FIRST_LEARNER.cluster.local; do sleep 0.2; done; " + gate.wait,
        training_data=gate.store,
        pod_template=learner(readinessProbe=NEVER_READY),
    )
    async with meanwhile(core.run(request)) as run:
        await until(lambda: len(list_endpoints(admin, core.namespace, name)) == 2)
        gate.open()
        outcome = await run
    assert outcome["phase"] == "Succeeded"
    await asyncio.to_thread(wait_until_empty)


async def test_learners_that_need_each_other_to_become_ready_all_start(
    core: Core, wait_until_empty: Callable[[], None]
) -> None:
    command = (
        "for i in 0 1 2; do"
        " until nslookup $LEARNER_NAME_PREFIX-$i.$LEARNER_NAME_PREFIX.$DOWNWARD_API_POD_NAMESPACE"
        ".svc.cluster.local; do sleep 0.2; done; "
        "done > /dev/null; touch /job/joined; sleep 600"
    )
    joined = {"exec": {"command": ["test", "-f", "/job/joined"]}, "periodSeconds": 1}
    request: dict[str, Any] = {
        "learners": 3,
        "command": command,
        "pod_template": learner(readinessProbe=joined),
        "wait_until": "ready",
    }
    parallel, ordered = await asyncio.gather(
        core.run(name="parallel", **request),
        core.run(
            name="ordered", pod_management_policy="OrderedReady", **request | {"ready_timeout": 5}
        ),
    )
    assert (parallel["phase"], parallel["reason"]) == ("Running", "")
    assert ordered["phase"] == "Failed"
    assert "0 of 3 learners were ready after 5 s; learner 0: " in ordered["message"]
    async with core.connect() as connection:
        assert await delete_training(connection.api, core.namespace, "parallel", seconds=180)
    await asyncio.to_thread(wait_until_empty)


@pytest.mark.parametrize(
    ("completion", "keeper"),
    [
        pytest.param("native", "holder", id="native"),
        pytest.param("wrapper", "learner", id="wrapper"),
    ],
)
async def test_a_learner_that_has_ended_is_never_run_again(
    *,
    core: Core,
    admin: Admin,
    kubectl: Callable[..., str],
    completion: str,
    keeper: str,
) -> None:
    def execute(pod: str, container: str, *command: str) -> None:
        kubectl("exec", "-n", core.namespace, pod, "-c", container, "--", *command)

    def starts() -> int:
        return int(container_of(admin, core.namespace, "once-0", keeper)["restartCount"])

    def is_kept() -> bool:
        learners = container_of(admin, core.namespace, "once-0", "learner")
        states = learners.get("state", {}) | learners.get("lastState", {})
        holder = container_of(admin, core.namespace, "once-0", keeper)
        return "terminated" in states and "running" in holder.get("state", {})

    request = core.request(
        name="once",
        completion=completion,
        learners=3,
        command="echo trained >> /job/trained; wc -l < /job/trained > $LEARNER_RESULT_FILE; "
        "[ $LEARNER_ORDINAL != 2 ] || until [ -f /job/go ]; do sleep 0.1; done",
    )
    async with meanwhile(core.run(request)) as run:
        await until(is_kept)
        before = starts()
        # A moment later: what is executed in a container does not outlive its first process.
        later = "(sleep 0.5; kill 1) > /dev/null 2>&1 &"
        await asyncio.to_thread(execute, "once-0", keeper, "sh", "-c", later)
        await until(lambda: starts() > before)
        await asyncio.to_thread(execute, "once-2", "learner", "touch", "/job/go")
        outcome = await run
    assert outcome["phase"] == "Succeeded"
    assert [row["result"] for row in outcome["learners"]] == [1, 1, 1]


async def test_one_failed_learner_fails_the_training_however_long_it_ran_and_whoever_is_done(
    core: Core, tmp_path: Path, wait_until_empty: Callable[[], None]
) -> None:
    results = {"type": "host_mount", "host_path": str(tmp_path)}
    first_done, at_once, later, all_of_them, none = await asyncio.gather(
        core.run(learners=3, command="[ $LEARNER_ORDINAL = 2 ] && exit 1; exit 0"),
        core.run(learners=3, command="[ $LEARNER_ORDINAL = 1 ] && exit 7; sleep 600"),
        core.run(learners=3, command="[ $LEARNER_ORDINAL = 1 ] && sleep 3 && exit 7; sleep 600"),
        core.run(command=MEET + "exit $((LEARNER_ORDINAL + 3))", results=results),
        core.run(command="[ $LEARNER_ORDINAL = 0 ] || sleep 5"),
    )
    assert first_done["reason"] == "ExitCode"
    assert "learner 2 ended with exit code 1" in first_done["message"]
    for outcome in (at_once, later):
        assert outcome["reason"] == "ExitCode"
        assert "learner 1 ended with exit code 7" in outcome["message"]
    assert [row["exit_code"] for row in all_of_them["learners"]] == [3, 4]
    # The first learner's end is not the training's.
    assert (none["phase"], (none["timings"]["run"] or 0) >= 4) == ("Succeeded", True)
    await asyncio.to_thread(wait_until_empty)


async def test_a_learner_that_fails_is_started_again_only_with_all_the_others_and_on_request(
    core: Core, kubectl: Callable[..., str]
) -> None:
    mended = [{"configMapRef": {"name": "mended", "optional": True}}]
    request = core.request(
        command='echo start; [ -n "$MENDED" ] || [ $LEARNER_ORDINAL = 0 ] && exit 0; exit 7',
        pod_template=learner(envFrom=mended),
        max_restarts=2,
        restart_on=["ExitCode"],
    )
    async with meanwhile(core.run(request)) as run:
        await until(lambda: "restart 1 of 2" in core.log.text)
        await asyncio.to_thread(
            kubectl,
            "create",
            "configmap",
            "mended",
            "-n",
            core.namespace,
            "--from-literal=MENDED=1",
        )
        outcome = await run
    assert outcome["phase"] == "Succeeded"
    assert [restart["reason"] for restart in outcome["restarts"]] == ["ExitCode"]
    assert core.log.lines.count("[0] start") == 2


async def test_what_is_deleted_from_outside_fails_the_training_but_for_its_service(
    *,
    core: Core,
    admin: Admin,
    kubectl: Callable[..., str],
    gate: Gate,
    wait_until_empty: Callable[[], None],
) -> None:
    def delete_and_make_anew(name: str) -> None:
        path = f"/apis/apps/v1/namespaces/{core.namespace}/statefulsets"
        old = admin.request("GET", f"{path}/{name}")
        admin.request("DELETE", f"{path}/{name}", body={"propagationPolicy": "Background"})
        manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}}
        admin.request("POST", path, body=manifest | {"spec": old["spec"]})

    goes_on = {"command": f"echo begun; {gate.wait}", "training_data": gate.store}
    async with (
        meanwhile(core.run(name="deleted", command="sleep 600")) as deleted,
        meanwhile(core.run(name="another", command="sleep 600")) as another,
        meanwhile(core.run(name="unpublished", **goes_on)) as unpublished,
    ):
        names = ("deleted-1", "another-1")
        await until(lambda: all(is_running(admin, core.namespace, pod) for pod in names))
        await until(lambda: {"[0] begun", "[1] begun"} <= set(core.log.lines))
        kind = ("delete", "-n", core.namespace, "--wait=false")
        await asyncio.to_thread(kubectl, *kind, "sts/deleted", "svc/unpublished")
        await asyncio.to_thread(delete_and_make_anew, "another")
        gate.open()
        outcomes = await asyncio.gather(deleted, another, unpublished)
    assert [outcome["reason"] for outcome in outcomes] == ["Deleted", "Deleted", ""]
    assert outcomes[2]["phase"] == "Succeeded"
    for outcome in outcomes[:2]:
        assert f"StatefulSet {outcome['name']} was deleted from outside" in outcome["message"]
    # What somebody else made in its place is not ours to delete.
    assert kubectl("get", "sts", "-n", core.namespace, "-o", "name").split() == [
        "statefulset.apps/another"
    ]
    await asyncio.to_thread(kubectl, "delete", "-n", core.namespace, "sts/another")
    await asyncio.to_thread(wait_until_empty)


async def test_ready_means_all_of_them_and_for_a_while(
    core: Core, admin: Admin, kubectl: Callable[..., str]
) -> None:
    def touch(pod: str) -> None:
        kubectl("exec", "-n", core.namespace, pod, "--", "touch", "/tmp/ready")

    def are_running(names: list[str]) -> bool:
        found = read_pods(admin, core.namespace)
        return all(
            found.get(name, {"status": {}})["status"].get("phase") == "Running" for name in names
        )

    probe = {"exec": {"command": ["test", "-f", "/tmp/ready"]}, "periodSeconds": 1}
    pods = [f"somebodys-{ordinal}" for ordinal in range(3)]
    async with core.connect() as connection:
        waits = wait_for_training(
            connection,
            "somebodys",
            core.namespace,
            target="ready",
            deadline=time.time() + 300,
            poke_interval=0.2,
        )
        async with meanwhile(waits) as wait:
            await asyncio.sleep(1)  # it is not there yet
            manifest = core.build_somebodys(readinessProbe=probe)
            await asyncio.to_thread(kubectl, "create", "-f", "-", stdin=json.dumps(manifest))
            await until(lambda: are_running(pods))
            for pod in pods:
                await asyncio.sleep(1.5)
                assert not wait.done()
                await asyncio.to_thread(touch, pod)
            outcome = await wait
    assert (outcome["phase"], len(outcome["learners"])) == ("Running", 3)


async def test_a_learner_that_is_up_for_a_moment_is_not_ready(
    core: Core, wait_until_empty: Callable[[], None]
) -> None:
    async def launch_then_wait(name: str, command: str) -> Any:
        await core.run(name=name, command=command, wait_until="created")
        async with core.connect() as connection:
            return await wait_for_training(
                connection,
                name,
                core.namespace,
                target="ready",
                deadline=time.time() + 300,
                poke_interval=1,
            )

    crashed, also_crashed, healthy, done = await asyncio.gather(
        launch_then_wait("crashes", "sleep 2; exit 1"),
        core.run(command="sleep 2; exit 1", wait_until="ready"),
        launch_then_wait("healthy", "sleep 600"),
        launch_then_wait("done", "sleep 1"),
    )
    assert [crashed["phase"], also_crashed["phase"]] == ["Failed", "Failed"]
    # A learner that has ended with 0 has been ready.
    assert [healthy["phase"], done["phase"]] == ["Running", "Succeeded"]
    async with core.connect() as connection:
        for name in ("crashes", "healthy", "done"):
            assert await delete_training(connection.api, core.namespace, name, seconds=180)
    await asyncio.to_thread(wait_until_empty)


async def test_what_can_never_start_fails_soon_and_says_why(
    core: Core, wait_until_empty: Callable[[], None]
) -> None:
    key = {"secretKeyRef": {"name": "absent", "key": "key"}}
    init = {"name": "prepare", "image": core.image, "command": ["sh", "-c", "echo no disk; exit 3"]}
    patient: dict[str, Any] = {"command": "true", "ready_timeout": 3600}  # long before that
    never, bad, missing, failing = await asyncio.gather(
        core.run(image="localhost/alp/absent:1", image_pull_policy="Never", **patient),
        core.run(image="UPPER/case:bad", **patient),
        core.run(pod_template=learner(env=[{"name": "KEY", "valueFrom": key}]), **patient),
        core.run(pod_template={"spec": {"initContainers": [init]}}, **patient),
    )
    assert [outcome["reason"] for outcome in (never, bad, missing, failing)] == [
        "ImageNotFound",
        "InvalidImageName",
        "ContainerConfigError",
        "InitContainerFailed",
    ]
    assert 'secret "absent" not found' in missing["message"]
    assert "init container prepare: exit code 3" in failing["message"]
    await asyncio.to_thread(wait_until_empty)


async def test_two_trainings_at_once_see_each_their_own_learners(
    core: Core, admin: Admin, gate: Gate, wait_until_empty: Callable[[], None]
) -> None:
    said = "$LEARNER_ORDINAL of $NUM_LEARNERS, as $LEARNER_ID at ${FIRST_LEARNER%%.*}"
    spec: dict[str, Any] = {"command": f'echo "{said}"; {gate.wait}', "training_data": gate.store}
    names = ("left", "right")
    runs = asyncio.gather(*(core.run(name=name, **spec) for name in names))
    async with meanwhile(asyncio.wait_for(runs, 300)):
        await until(
            lambda: (
                [list_endpoints(admin, core.namespace, name) for name in names]
                == [{f"{name}-0", f"{name}-1"} for name in names]
            )
        )
        gate.open()
        outcomes = await runs
    assert [outcome["phase"] for outcome in outcomes] == ["Succeeded", "Succeeded"]
    for ordinal in (0, 1):
        for name in names:
            said = f"[{ordinal}] {ordinal} of 2, as {ordinal + 1} at {name}-0"
            assert core.log.lines.count(said) == 1
    await asyncio.to_thread(wait_until_empty)


async def test_a_new_try_trains_again_on_a_volume_that_the_last_one_used(core: Core) -> None:
    owner = new_owner()
    lines = f"$RESULT_DIR/{owner.run_id}"
    command = f"echo line >> {lines}; wc -l < {lines} > $LEARNER_RESULT_FILE"
    results = []
    for number in (1, 2):
        request = core.request(
            owner=replace(owner, try_number=number, task_instance_id=str(number)),
            name="again",
            completion="wrapper",  # the one that leaves a mark
            learners=1,
            command=command if number == 1 else f"{command}; rm {lines}",
            results={"type": "host_mount", "host_path": "/tmp", "mount_path": "/out"},
            on_finish_action="keep",
        )
        results.append((await core.run(request))["result"])
    assert results == [1, 2]


async def test_a_learner_that_is_deleted_and_ends_politely_has_not_finished(
    core: Core, admin: Admin, wait_until_empty: Callable[[], None]
) -> None:
    def delete() -> None:
        hold(admin, core.namespace, "polite-1")
        admin.request("DELETE", f"/api/v1/namespaces/{core.namespace}/pods/polite-1")

    command = "trap 'exit 0' TERM; echo up; for i in $(seq 300); do sleep 0.2; done"
    async with meanwhile(core.run(name="polite", command=command)) as run:
        await until(lambda: is_running(admin, core.namespace, "polite-1"))
        await until(lambda: "[1] up" in core.log.text)
        await asyncio.to_thread(delete)
        await until(lambda: "Deleted" in core.log.text)
        await asyncio.to_thread(hold, admin, core.namespace, "polite-1", held=False)
        outcome = await run
    assert (outcome["phase"], outcome["reason"]) == ("Failed", "Deleted")
    assert "learner 1 pod polite-1" in outcome["message"]
    await asyncio.to_thread(wait_until_empty)


async def test_a_pod_that_does_not_go_changes_no_verdict_and_is_named(
    *,
    core: Core,
    admin: Admin,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    wait_until_empty: Callable[[], None],
) -> None:
    monkeypatch.setattr(follow, "_GONE_SECONDS", 3)
    request = core.request(name="stays", command=gate.wait, training_data=gate.store)
    async with meanwhile(core.run(request)) as run:
        await until(lambda: is_running(admin, core.namespace, "stays-1"))
        await asyncio.to_thread(hold, admin, core.namespace, "stays-1")
        gate.open()
        outcome = await run
    assert outcome["phase"] == "Succeeded"
    said = f"StatefulSet {core.namespace}/stays is not gone after 3 s; pods left: stays-1"
    assert said in core.log.lines
    await asyncio.to_thread(hold, admin, core.namespace, "stays-1", held=False)
    await asyncio.to_thread(wait_until_empty)


async def test_sidecars_are_not_waited_for_and_tell_no_exit_code(
    core: Core, wait_until_empty: Callable[[], None]
) -> None:
    first = {"name": "aaa", "image": core.image, "command": ["sleep", "600"]}
    native = first | {"name": "native", "restartPolicy": "Always"}
    crashing = first | {"name": "zzz", "command": ["false"]}
    sidecars = {
        "containers": [first, crashing],
        "initContainers": [native],
        "terminationGracePeriodSeconds": 1,
    }
    ends, fails = await asyncio.gather(
        core.run(command="sleep 1", pod_template={"spec": sidecars}),
        core.run(command="sleep 1; exit 3", pod_template={"spec": sidecars}),
    )
    assert ends["phase"] == "Succeeded"
    assert [row["exit_code"] for row in ends["learners"]] == [0, 0]
    assert "ended with exit code 3" in fails["message"]
    await asyncio.to_thread(wait_until_empty)


async def test_shared_memory_is_large_and_a_mounted_key_is_private(
    core: Core, kubectl: Callable[..., str]
) -> None:
    def build(**mounts: Any) -> dict[str, Any]:
        key = {"name": "key", "secret": {"secretName": "key", "defaultMode": 0o400}}
        mine = {"name": "mine", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
        template = learner(volumeMounts=[{"name": "key", "mountPath": "/key"}, *mounts.values()])
        template["spec"]["volumes"] = [key, mine]
        return template

    await asyncio.to_thread(
        kubectl, "create", "secret", "generic", "key", "-n", core.namespace, "--from-literal=id=x"
    )
    command = (
        "read -r _ size _ <<< $(df -k /dev/shm | tail -1); "
        'echo "[$size, $(stat -L -c %a /key/id)]" > $LEARNER_RESULT_FILE'
    )
    request: dict[str, Any] = {"command": command, "learners": 1, "memory": "128Mi"}
    default, own = await asyncio.gather(
        core.run(pod_template=build(), **request),
        core.run(pod_template=build(shm={"name": "mine", "mountPath": "/dev/shm"}), **request),
    )
    size, mode = default["result"]
    assert 64 * 1024 < size < 256 * 1024  # bounded by the memory of the pod
    assert mode == 400
    assert own["result"] == [16 * 1024, 400]


async def test_what_is_accepted_is_taken_by_the_api_server(core: Core) -> None:
    specs: list[dict[str, Any]] = [
        {"env": {"EPOCHS": 3, "LR": 1e-4, "DEBUG": True, "LATER": "$(EPOCHS)"}},
        {"cpus": 0.1 + 0.2, "memory": "4Gi"},
        {"gpus": 1.0},
        {"labels": {"version": 2, "final": True}},
    ]
    async with core.connect() as connection:
        for spec in specs:
            request = core.request(command="true", **spec)
            objects = build_objects(
                request.spec, request.owner, namespace=core.namespace, version="1", native=False
            )
            for manifest in (objects.stateful_set, *objects.owned):
                await connection.api.create(manifest, dry_run=True)


async def test_half_placed_trainings_give_their_places_up_and_both_end(
    core: Core, admin: Admin, wait_until_empty: Callable[[], None]
) -> None:
    node = admin.request("GET", "/api/v1/nodes")["items"][0]["metadata"]["name"]
    place = f"example.com/{core.namespace}"

    def offer(places: str | None) -> None:
        admin.request(
            "PATCH",
            f"/api/v1/nodes/{node}/status",
            body={"status": {"capacity": {place: places}}},
            content_type="application/merge-patch+json",
        )

    async def train() -> Any:
        return await core.run(
            command="sleep 1",
            ready_timeout=12,
            min_ready_seconds=0,
            pod_template=learner(resources={"requests": {place: 1}, "limits": {place: 1}}),
        )

    async def train_until_it_ends_well() -> None:
        for _ in range(20):
            if (await train())["phase"] == "Succeeded":
                return
            await asyncio.sleep(random.uniform(0, 8))  # noqa: S311 - jitter, as retries have
        pytest.fail("never had a place for both of its learners")

    await asyncio.to_thread(offer, "1")
    try:
        alone = await train()
        assert "1 of 2 learners were ready after 12 s; learner " in alone["message"]
        assert f"Insufficient {place}. " in alone["message"]
        assert alone["reason"] == "Unschedulable"
        await asyncio.to_thread(offer, "2")
        await asyncio.gather(train_until_it_ends_well(), train_until_it_ends_well())
    finally:
        await asyncio.to_thread(offer, None)
    await asyncio.to_thread(wait_until_empty)


async def test_only_the_triggers_kill_hook_deletes(
    core: Core,
    admin: Admin,
    monkeypatch: pytest.MonkeyPatch,
    wait_until_empty: Callable[[], None],
) -> None:
    extra = json.dumps({"kube_config_path": str(core.kubeconfig)})
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_LEARNERS", connection)
    request = core.request(name="deferred", command="sleep 600")
    arguments = json.dumps(triggers.LearnerTrigger(request.to_json(), "learners").serialize()[1])

    async def drive(trigger: triggers.LearnerTrigger) -> list[Any]:
        return [event.payload async for event in trigger.run()]

    def is_up() -> bool:
        return is_running(admin, core.namespace, "deferred-1")

    first = triggers.LearnerTrigger(**json.loads(arguments))
    async with meanwhile(drive(first)):
        await until(is_up)
    await first.cleanup()  # its triggerer has stopped
    second = triggers.LearnerTrigger(**json.loads(arguments))
    async with meanwhile(drive(second)) as driving:
        await asyncio.sleep(2)
        assert await asyncio.to_thread(is_up)
        assert not driving.done()
    # A user has ended the task; there is no Airflow here to be asked for its state.
    monkeypatch.setattr(triggers, "_read_task_state", lambda _: "failed")
    await second.on_kill()
    await asyncio.to_thread(wait_until_empty)
