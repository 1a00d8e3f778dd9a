"""The API server and the network on the way to it fail while a training is followed."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kubernetes.client import V1ObjectMeta, V1Secret

from airflow_learner_provider.cluster import api, logs, watch
from airflow_learner_provider.cluster.connection import connect
from airflow_learner_provider.cluster.credentials import ClusterSettings
from airflow_learner_provider.cluster.follow import run_training
from airflow_learner_provider.training.outcome import Outcome
from airflow_learner_provider.training.request import TrainingRequest
from dev.airflow.access import SERVICE_ACCOUNT, Admin
from tests.cluster.core import Core, Gate, TaskLog, abandon, until
from tests.cluster.proxy import Proxy, Request

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api

OUTAGE_SECONDS = 30
STEPS = "for step in $(seq 15); do echo step $step; sleep 0.2; done"
COUNTED = [f"step {number}" for number in range(1, 16)]


@pytest.fixture
def proxies(admin: Admin, namespace: str) -> Iterator[Callable[[], Proxy]]:
    """Start proxies in front of the API server."""
    kubeconfig = admin.create_role_kubeconfig(namespace)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Proxy(kubeconfig))


def through(proxy: Proxy, core: Core) -> Core:
    """The same trainings on the way through a proxy, with a log of their own."""
    path = core.kubeconfig.with_name(f"{uuid.uuid4().hex}.json")
    path.write_text(json.dumps(proxy.kubeconfig))
    return core.beside(path)


@dataclass(frozen=True)
class Outage:
    """When the API server goes away, and how.

    :param after: words in the log of the training.
    :param status: what it answers; None takes no connections.
    """

    after: str
    command: str
    status: int | None = None


OUTAGES = {
    "at the start": Outage("", STEPS),
    "while it starts": Outage("Created StatefulSet", STEPS),
    "while it runs": Outage("[1] step 5", STEPS),
    "while it ends": Outage("[1] step 14", STEPS),
    "after the end of one": Outage("[0] bye", "[ $LEARNER_ORDINAL = 0 ] && sleep 3; echo bye"),
    "answers 503 at the start": Outage("", STEPS, 503),
    "answers 500 while it runs": Outage("[1] step 5", STEPS, 500),
    "answers 429 while it runs": Outage("[1] step 5", STEPS, 429),
}


async def test_an_outage_of_the_api_server_changes_no_verdict(
    core: Core, proxies: Callable[[], Proxy], wait_until_empty: Callable[[], None]
) -> None:
    async def run(outage: Outage) -> tuple[Outcome, TaskLog]:
        proxy = proxies()
        mine = through(proxy, core)
        training: asyncio.Task[Outcome] | None = None
        if outage.after:
            training = mine.start(mine.request(command=outage.command))
            await until(lambda: outage.after in mine.log.text)
        if outage.status is None:
            proxy.refuse()
        else:
            proxy.before = lambda _: outage.status
        training = training or mine.start(mine.request(command=outage.command))
        await asyncio.sleep(OUTAGE_SECONDS)
        proxy.before = lambda _: None
        if outage.status is None:
            proxy.accept()
        return await training, mine.log

    ran = await asyncio.gather(*(run(outage) for outage in OUTAGES.values()))
    for (when, outage), (outcome, log) in zip(OUTAGES.items(), ran, strict=True):
        assert outcome["phase"] == "Succeeded", f"{when}: {outcome['message']}"
        assert [row["restarts"] for row in outcome["learners"]] == [0, 0], when
        if outage.command == STEPS:
            assert log.of_learner(0) == COUNTED, when
    await asyncio.to_thread(wait_until_empty)


async def test_an_expired_watch_position_is_passed_over(
    *,
    core: Core,
    proxies: Callable[[], Proxy],
    gate: Gate,
    wait_until_empty: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_WATCH_SECONDS", 1)
    proxy = proxies()
    mine = through(proxy, core)
    expired: list[str] = []

    def go_back(request: Request) -> None:
        # The first positions of all were compacted away long ago, so the API server says 410.
        kind = request.path.rpartition("/")[2]
        if "watch" in request.query and expired.count(kind) < 2 and "step 3" in mine.log.text:
            request.query["resourceVersion"] = "1"
            expired.append(kind)
        if len(expired) == 6:
            gate.open()

    proxy.before = go_back
    outcome = await mine.run(
        mine.request(command=f"{STEPS}; {gate.wait}", training_data=gate.store)
    )
    assert outcome["phase"] == "Succeeded"
    assert mine.log.of_learner(0) == COUNTED
    assert sorted(expired) == ["events"] * 2 + ["pods"] * 2 + ["statefulsets"] * 2
    await asyncio.to_thread(wait_until_empty)


async def test_a_triggerer_that_stops_notes_its_logs_slowly_and_no_line_comes_twice(
    core: Core, proxies: Callable[[], Proxy], wait_until_empty: Callable[[], None]
) -> None:
    def slow(request: Request) -> None:
        if request.method == "PATCH" and b"log-positions" in request.body:
            time.sleep(1)  # five lines' time

    proxy = proxies()
    proxy.before = slow
    mine = through(proxy, core)
    request = mine.request(command=STEPS)
    first = mine.start(request)
    await until(lambda: "step 3" in mine.log.of_learner(0))
    await abandon(first)
    await mine.run(request)
    assert [mine.log.of_learner(ordinal) for ordinal in (0, 1)] == [COUNTED] * 2
    await asyncio.to_thread(wait_until_empty)


async def test_a_frozen_connection_is_noticed_and_the_training_ends_well(
    core: Core,
    proxies: Callable[[], Proxy],
    wait_until_empty: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The limits as they are, a tenth as long.
    monkeypatch.setattr(api, "_CALL_SECONDS", api._CALL_SECONDS / 10)
    monkeypatch.setattr(watch, "_WATCH_SECONDS", 3)
    monkeypatch.setattr(watch, "_SILENCE_SECONDS", 4)
    monkeypatch.setattr(logs, "_SILENCE_SECONDS", 3)

    async def run(*, new_too: bool) -> None:
        """Freeze the connections that there are, or the whole network for a while."""
        proxy = proxies()
        mine = through(proxy, core)
        training = mine.start(mine.request(command=STEPS))
        await until(lambda: "[1] step 5" in mine.log.text)
        proxy.freeze(new_too=new_too)
        if new_too:
            await asyncio.sleep(6)
            proxy.thaw()
        outcome = await training
        assert outcome["phase"] == "Succeeded"
        assert mine.log.of_learner(0) == COUNTED

    await asyncio.gather(run(new_too=False), run(new_too=True))
    await asyncio.to_thread(wait_until_empty)


def test_a_stream_that_is_left_is_closed_with_its_session(core: Core) -> None:
    async def watch_for_a_moment() -> None:
        async with (
            core.connect() as connection,
            connection.api.stream("Pod", core.namespace, params={"watch": "true"}, silence=30),
        ):
            pass

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(5):
            asyncio.run(watch_for_a_moment())
        gc.collect()  # what is left open says so
    assert said == []


async def test_a_token_that_is_replaced_is_read_again(
    *,
    core: Core,
    admin: Admin,
    core_api: CoreV1Api,
    tmp_path: Path,
    wait_until_empty: Callable[[], None],
) -> None:
    # A token that is bound to a Secret ends with it, as one does whose time is over.
    # https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-tokens
    where = core.namespace
    tokens = tmp_path / "token"
    tokens.write_text(create_bound_token(admin, core_api, where, "first"))
    kubeconfig = admin.create_role_kubeconfig(where)
    kubeconfig["users"][0]["user"] = {"tokenFile": str(tokens)}
    core.kubeconfig.write_text(json.dumps(kubeconfig))

    def read_inline() -> ClusterSettings:
        """Settings of a connection with an inline kubeconfig, in which somebody puts new tokens."""
        kubeconfig["users"][0]["user"] = {"token": tokens.read_text()}
        return ClusterSettings(kube_config=json.dumps(kubeconfig))

    async def run_inline(request: TrainingRequest) -> Outcome:
        async with connect(read_inline(), lambda: asyncio.to_thread(read_inline)) as connection:
            return await run_training(connection, request, core.log)

    command = "for step in $(seq 18); do echo begun $step; sleep 1; done"
    trainings = [
        core.start(core.request(command=command)),
        asyncio.create_task(run_inline(core.request(command=command))),
    ]
    await until(lambda: core.log.text.count("begun 1\n") == 4)
    core_api.delete_namespaced_secret("first", where)
    tokens.write_text(create_bound_token(admin, core_api, where, "second"))
    outcomes = await asyncio.gather(*trainings)
    assert [outcome["phase"] for outcome in outcomes] == ["Succeeded", "Succeeded"]
    core_api.delete_namespaced_secret("second", where)
    await asyncio.to_thread(wait_until_empty)


def create_bound_token(admin: Admin, core_api: CoreV1Api, namespace: str, secret: str) -> str:
    core_api.create_namespaced_secret(namespace, V1Secret(metadata=V1ObjectMeta(name=secret)))
    bound = {"apiVersion": "v1", "kind": "Secret", "name": secret}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{SERVICE_ACCOUNT}/token"
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound},
    }
    token: str = admin.request("POST", path, body=body)["status"]["token"]
    return token
