"""Somebody or something else ends learners: the training fails and says what was done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes.client import ApiException

from airflow_learner_provider.cluster import follow
from airflow_learner_provider.training.diagnosis import GRACE, Reason
from dev.airflow.access import Admin
from tests.cluster.core import Core, until

MERGE = "application/merge-patch+json"


def replicas(admin: Admin, namespace: str, name: str, wanted: int) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}"
    admin.request("PATCH", path, body={"spec": {"replicas": wanted}}, content_type=MERGE)


def evict(admin: Admin, namespace: str, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    admin.request("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body=body)


def delete(admin: Admin, namespace: str, pod: str, **options: int) -> None:
    admin.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod}", body=options)


@pytest.mark.parametrize("completion", ["native", "wrapper"])
async def test_what_is_done_to_running_learners_is_named(
    core: Core, admin: Admin, wait_until_empty: Callable[[], None], completion: str
) -> None:
    where = core.namespace
    deeds: dict[str, tuple[str, Callable[[], None]]] = {
        "more": ("scaled to 3 from outside [Scaled]", lambda: replicas(admin, where, "more", 3)),
        "less": ("scaled to 1 from outside [Scaled]", lambda: replicas(admin, where, "less", 1)),
        "none": ("scaled to 0 from outside [Scaled]", lambda: replicas(admin, where, "none", 0)),
        "out": ("pod out-1 on node ", lambda: evict(admin, where, "out-1")),
        "gone": ("pod gone-0 on node ", lambda: delete(admin, where, "gone-0")),
        "forced": (
            "pod forced-1 on node ",
            lambda: delete(admin, where, "forced-1", gracePeriodSeconds=0),
        ),
    }
    command = "echo $TRAINING_ID is up; sleep 600"
    requests = [
        core.request(command=command, name=name, completion=completion, env={"NAME": name})
        for name in deeds
    ]
    trainings = [core.start(request) for request in requests]
    await until(lambda: core.log.text.count("is up") == 2 * len(deeds))
    for _, do in deeds.values():
        await asyncio.to_thread(do)
    outcomes = dict(zip(deeds, await asyncio.gather(*trainings), strict=True))
    reasons = {name: outcome["reason"] for name, outcome in outcomes.items()}
    assert reasons == {
        "more": "Scaled",
        "less": "Scaled",
        "none": "Scaled",
        "out": "Evicted",
        "gone": "Deleted",
        "forced": "Deleted",
    }
    for name, (words, _) in deeds.items():
        assert words in outcomes[name]["message"]
        assert f"training {where}/{name}:" in outcomes[name]["message"]
    await asyncio.to_thread(wait_until_empty)


@pytest.fixture
def ghost(admin: Admin, namespace: str) -> Iterator[str]:
    """A node without a machine: what runs there is what the test writes into its status."""
    name = f"ghost-{namespace}"
    taint = {"key": name, "effect": "NoSchedule"}
    admin.request(
        "POST",
        "/api/v1/nodes",
        body={
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"ghost": name}},
            "spec": {"taints": [taint]},
        },
    )
    set_node_ready(admin, name, status="True")
    # The node controller takes the taint of a node that is not ready back a little later.
    while admin.request("GET", f"/api/v1/nodes/{name}")["spec"]["taints"] != [taint]:
        time.sleep(0.1)
    yield name
    with suppress(ApiException):
        admin.request("DELETE", f"/api/v1/nodes/{name}")


def set_node_ready(admin: Admin, node: str, *, status: str) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {
        "type": "Ready",
        "status": status,
        "reason": "KubeletReady" if status == "True" else "NodeStatusUnknown",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    resources = {"cpu": "4", "memory": "4Gi", "pods": "10"}
    body = {"status": {"conditions": [ready], "capacity": resources, "allocatable": resources}}
    admin.request("PATCH", f"/api/v1/nodes/{node}/status", body=body, content_type=MERGE)


def set_running(admin: Admin, namespace: str, node: str) -> int:
    """Write into the pods on a node that they run; return how many there are."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods = [
        pod for pod in admin.request("GET", path)["items"] if pod["spec"].get("nodeName") == node
    ]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for pod in pods:
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ]
        scheduled = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        status = {"phase": "Running", "conditions": scheduled, "containerStatuses": containers}
        name = pod["metadata"]["name"]
        admin.request("PATCH", f"{path}/{name}/status", body={"status": status}, content_type=MERGE)
    return len(pods)


def take_back_readiness(admin: Admin, namespace: str, pod: str) -> None:
    """Take back a pod's readiness, as the node controller does when the node does not answer."""
    path = f"/api/v1/namespaces/{namespace}"
    found = admin.request("GET", f"{path}/pods/{pod}")
    conditions = [
        condition | ({"status": "False"} if condition["type"] == "Ready" else {})
        for condition in found["status"]["conditions"]
    ]
    body = {"status": {"conditions": conditions}}
    admin.request("PATCH", f"{path}/pods/{pod}/status", body=body, content_type=MERGE)


def tolerate(ghost: str, *, unreachable_seconds: int) -> list[dict[str, Any]]:
    """Tolerations of pods that may be on the ghost, and stay for so long when it disappears."""
    patience = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": unreachable_seconds,
    }
    return [{"key": ghost, "operator": "Exists"}, patience]


async def disappear(admin: Admin, namespace: str, ghost: str, *trainings: str) -> None:
    """Let a node not answer any more, with both learners of each training on it."""
    for pod in (f"{training}-{ordinal}" for training in trainings for ordinal in (0, 1)):
        await asyncio.to_thread(take_back_readiness, admin, namespace, pod)
    await asyncio.to_thread(set_node_ready, admin, ghost, status="Unknown")


async def test_a_node_that_disappears_fails_the_training_whether_or_not_its_pods_are_evicted(
    *,
    core: Core,
    admin: Admin,
    ghost: str,
    kubectl: Callable[..., str],
    wait_until_empty: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow, "_GONE_SECONDS", 2)

    def request(name: str, seconds: int) -> Any:
        tolerations = tolerate(ghost, unreachable_seconds=seconds)
        return core.request(
            command="sleep 600",
            name=name,
            node_selector={"ghost": ghost},
            pod_template={"spec": {"tolerations": tolerations}},
        )

    trainings = [core.start(request("evicted", 0)), core.start(request("waiting", 3600))]
    await until(lambda: set_running(admin, core.namespace, ghost) == 4)
    await until(lambda: core.log.text.count("learners are ready") == 2)
    await disappear(admin, core.namespace, ghost, "evicted", "waiting")
    evicted = await trainings[0]
    monkeypatch.setitem(GRACE, Reason.NODE_NOT_READY, 1)
    where = ("-n", core.namespace)
    await asyncio.to_thread(kubectl, "label", *where, "pod/waiting-0", "look=again")
    waiting = await trainings[1]
    assert [evicted["reason"], waiting["reason"]] == ["NodeLost", "NodeNotReady"]
    assert f"on node {ghost} was lost" in evicted["message"]
    assert f"node {ghost} does not answer" in waiting["message"]
    for outcome in (evicted, waiting):
        assert "retry." in outcome["message"]
        assert f"{outcome['name']} is not gone after 2 s; pods left: " in core.log.text
    # Without a kubelet nobody but a person can say that the pods are gone.
    await asyncio.to_thread(kubectl, "delete", "pods", "--all", "--force", *where)
    await asyncio.to_thread(wait_until_empty)


async def test_learners_whose_node_disappears_are_started_again_elsewhere_on_request(
    *,
    core: Core,
    admin: Admin,
    ghost: str,
    kubectl: Callable[..., str],
    wait_until_empty: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(GRACE, Reason.NODE_NOT_READY, 1)
    matches = {"matchExpressions": [{"key": "ghost", "operator": "In", "values": [ghost]}]}
    there_first = [{"weight": 100, "preference": matches}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": there_first}}
    tolerations = tolerate(ghost, unreachable_seconds=3600)
    request = core.request(
        command="echo again",
        name="again",
        max_restarts=1,
        restart_on=["NodeNotReady"],
        pod_template={"spec": {"affinity": affinity, "tolerations": tolerations}},
    )
    training = core.start(request)
    await until(lambda: set_running(admin, core.namespace, ghost) == 2)
    await until(lambda: "learners are ready" in core.log.text)
    await disappear(admin, core.namespace, ghost, "again")
    await until(lambda: "[NodeNotReady]; starting all learners again" in core.log.text)
    # Until somebody says that the old ones are gone, no new ones run beside them.
    await asyncio.to_thread(kubectl, "delete", "pods", "--all", "--force", "-n", core.namespace)
    outcome = await training
    assert outcome["phase"] == "Succeeded"
    assert [restart["reason"] for restart in outcome["restarts"]] == ["NodeNotReady"]
    assert [row["node"] == ghost for row in outcome["learners"]] == [False, False]
    assert "[1] again" in core.log.lines
    await asyncio.to_thread(wait_until_empty)
