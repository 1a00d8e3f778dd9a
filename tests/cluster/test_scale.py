"""Many trainings at once, on a node that only KWOK knows: what they cost, counted and not timed."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_learner_provider.cluster import logs, watch
from airflow_learner_provider.cluster.api import Api
from dev.airflow.access import Admin
from dev.cluster import build, simulated
from tests.cluster.core import Core, until

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api

MANY = 60
PLACES = 5


@pytest.fixture
def simulated_node(kubeconfig: Path, admin: Admin, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A node of which KWOK says that it runs pods: the fields of a training that runs there."""
    build.build((build.KWOK,))
    name = f"simulated-{int(time.time())}"
    admin.request("POST", "/api/v1/nodes", body=simulated.build_node(name, tainted=True))
    with (tmp_path / "kwok.log").open("wb") as output:
        kwok = subprocess.Popen(simulated.build_kwok(kubeconfig).argv, stdout=output, stderr=output)
    toleration = {"key": simulated.LABEL, "operator": "Exists"}
    try:
        yield {
            "node_selector": {simulated.LABEL: "true"},
            "pod_template": {"spec": {"tolerations": [toleration]}},
        }
    finally:
        admin.request("DELETE", f"/api/v1/nodes/{name}")
        kwok.terminate()
        kwok.wait()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the requests to the API server by what they ask for."""
    counted: Counter[str] = Counter()
    send = Api._send

    def count(self: Api, credentials: Any, method: str, path: str, **more: Any) -> Any:
        verb = "watch" if "watch" in (more["params"] or {}) else method
        counted[f"{verb} {path.rpartition('/')[2]}"] += 1
        return send(self, credentials, method, path, **more)

    monkeypatch.setattr(Api, "_send", count)
    return counted


async def test_to_wait_for_many_trainings_costs_no_more_than_to_wait_for_one(
    core: Core,
    core_api: CoreV1Api,
    simulated_node: dict[str, Any],
    requests: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_WATCH_SECONDS", 2)
    monkeypatch.setattr(logs, "_MOST_FOLLOWED", PLACES)
    monkeypatch.setattr(logs, "_LONGEST_PAUSE_SECONDS", 3600)
    spec: dict[str, Any] = {
        "learners": 1,
        "command": "train",
        "min_ready_seconds": 0,
    } | simulated_node
    begun = time.monotonic()
    trainings = [core.start(core.request(**spec)) for _ in range(MANY)]
    await until(lambda: core.log.text.count("All 1 learners are ready") == MANY, seconds=60)

    await until(lambda: requests["GET log"] >= MANY, seconds=60)  # nobody answers for a log
    logs_read = requests["GET log"]
    requests.clear()
    await asyncio.sleep(4)
    waiting = {what: n for what, n in requests.items() if not what.endswith(" log")}
    assert waiting.keys() == {"watch statefulsets", "watch pods", "watch events"}
    assert all(n <= 3 for n in waiting.values())
    # Once for each, and again twenty times at once and then once a second, all logs together.
    assert logs_read + requests["GET log"] <= MANY + 20 + time.monotonic() - begun

    pods = core_api.list_namespaced_pod(core.namespace).items
    await asyncio.to_thread(end_learners, core_api, core.namespace, pods)
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*trainings)
    assert [outcome["phase"] for outcome in outcomes] == ["Succeeded"] * MANY


def end_learners(core_api: CoreV1Api, namespace: str, pods: list[Any]) -> None:
    """Say what a kubelet says when learners have ended with 0."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"exitCode": 0, "startedAt": now, "finishedAt": now}
    for pod in pods:
        statuses = [
            {"name": container.name, "image": "i", "imageID": "", "restartCount": 0, "ready": True}
            | {"state": {"running": {"startedAt": now}}}
            for container in pod.spec.containers
        ]
        learner = next(status for status in statuses if status["name"] == "learner")
        learner.update(state={"terminated": ended}, ready=False)
        body = {"status": {"containerStatuses": statuses}}
        core_api.patch_namespaced_pod_status(pod.metadata.name, namespace, body)
