"""What it costs to wait for many trainings at once, in one triggerer, and what goes wrong then."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import yaml

from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.request import TrainingRequest
from airflow_learner_provider.training.spec import parse_training_spec
from benchmarks.frame import Benchmark, Effort, Row, median, percentile, say
from benchmarks.simulated import Simulated, simulated_cluster
from benchmarks.triggerer import Figures, Triggerer, run_triggerer

Json = dict[str, Any]

_CONNECTION = "kubernetes_default"
_TRAINING = "airflow_learner_provider.triggers.LearnerTrigger"
_MOMENT = "airflow.providers.standard.triggers.temporal.DateTimeTrigger"
_CNCF = "airflow.providers.cncf.kubernetes.triggers"
_LEARNERS = 2
_STORM = 500  # trainings in a minute
_STORM_SECONDS = 60
_OUTAGE_SECONDS = 10
_EVENT_SECONDS = 120
_KB = 50
# By whether the run is to be quick.
_PEERS = {
    True: [("KubernetesPodTrigger", 10)],
    False: [
        ("KubernetesPodTrigger", 10),
        ("KubernetesPodTrigger", 100),
        ("KubernetesJobTrigger", 100),
    ],
}


@dataclass
class _Waiting:
    """A triggerer that waits for trainings, in a namespace of a simulated cluster."""

    cluster: Simulated
    namespace: str
    kubeconfig: Json
    triggerer: Triggerer
    base: Figures
    requests: dict[int, Json] = field(default_factory=dict)  # of the trainings that run
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    async def grow(self, wanted: int, *, seconds: float = 0) -> float:
        """Start trainings until so many run; return how long that took, in seconds.

        :param seconds: over which they are started.
        """
        begun = time.monotonic()
        missing = wanted - len(self.requests)
        for i in range(missing):
            self.start(next(self._numbers))
            await asyncio.sleep(begun + seconds * i / missing - time.monotonic())
        await self.cluster.wait_for_pods(self.namespace, _LEARNERS * wanted)
        return time.monotonic() - begun

    def start(self, number: int) -> None:
        """Start a training, or go on with it."""
        training = self.requests.setdefault(number, _build_request(number, self.namespace))
        arguments = {"training": training, "kubernetes_conn_id": _CONNECTION}
        self.triggerer.start(number, _TRAINING, arguments)

    async def end(self, number: int) -> float:
        """Let the learners of a training end; return the Unix time just before the last does."""
        name = TrainingRequest.from_json(self.requests.pop(number)).name
        for ordinal in range(_LEARNERS):
            self.cluster.end_log(f"{name}-{ordinal}")
            path = f"/api/v1/namespaces/{self.namespace}/pods/{name}-{ordinal}/status"
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
            statuses = [
                {"name": "learner", "state": {"terminated": ended}, "ready": False}
                | {"image": "i", "imageID": "", "restartCount": 0},
                {"name": "holder", "state": {"running": {"startedAt": now}}, "ready": True}
                | {"image": "i", "imageID": "", "restartCount": 0},
            ]
            at = time.time()
            await self.cluster.patch(path, {"status": {"containerStatuses": statuses}})
        return at

    async def time_events(self, many: int) -> list[float]:
        """Let trainings end one after the other; return the seconds from each end to its event."""
        ended: dict[int, float] = {}
        for number in list(self.requests)[:many]:
            ended[number] = await self.end(number)
            await asyncio.sleep(0.05)
        await self.triggerer.wait_for(list(ended), seconds=_EVENT_SECONDS)
        return [self.triggerer.events[number][0] - at for number, at in ended.items()]

    async def measure(self, *, seconds: float, ends: int) -> Row:
        """Wait for a while, and then for the ends of some trainings."""
        many = len(self.requests)
        before, figures = await self.cluster.count_requests(), await self.triggerer.figures()
        await asyncio.sleep(seconds)
        after, later = await self.cluster.count_requests(), await self.triggerer.figures()
        asked = Counter({k: v - before[k] for k, v in after.items() if v > before[k]})
        a_minute = asked.total() * 60 / seconds
        kilobytes = (later.rss - self.base.rss) / many
        delays = await self.time_events(min(ends, many))
        p99 = percentile(delays, 99)
        values = {
            "API requests a minute": a_minute,
            "CPU %": (later.cpu - figures.cpu) / seconds * 100,
            "KB a training": kilobytes,
            "connections": later.sockets,
            "to event p50 ms": median(delays) * 1000,
            "p99 ms": p99 * 1000,
        }
        bar, met = "", None
        if many >= 1000:
            bar = f"<= 10 requests, {_KB} KB, p50 100 ms, p99 500 ms"
            met = a_minute <= 10 and kilobytes <= _KB and p99 <= 0.5 and median(delays) <= 0.1
        note = ", ".join(f"{n} {what}" for what, n in sorted(asked.items()))
        return Row(f"{many:,} trainings", values, bar=bar, met=met, note=note)


def _build_request(number: int, namespace: str) -> Json:
    spec = {
        "learners": _LEARNERS,
        "image": "simulated",
        "command": "train",
        "namespace": namespace,
        "min_ready_seconds": 0,
        "ready_timeout": 3600,
        "on_finish_action": "keep",
    }
    owner = Owner("waiting", "train", f"run-{number}", -1, 1, uuid.uuid4().hex, durable=False)
    return TrainingRequest(parse_training_spec(spec), owner, None, "0").to_json()


async def _open(stack: AsyncExitStack, cluster: Simulated, namespace: str) -> _Waiting:
    await asyncio.to_thread(cluster.admin.prepare_namespace, namespace)
    kubeconfig = await asyncio.to_thread(cluster.admin.create_role_kubeconfig, namespace)
    triggerer = await stack.enter_async_context(_run_triggerer(kubeconfig))
    waiting = _Waiting(cluster, namespace, kubeconfig, triggerer, await triggerer.figures())
    await waiting.grow(1)
    await waiting.time_events(1)  # all that is imported at the first use
    waiting.base = await triggerer.figures()
    return waiting


def _run_triggerer(kubeconfig: Json) -> Any:
    return run_triggerer({_CONNECTION: {"kube_config": json.dumps(kubeconfig)}})


async def _measure_storm(waiting: _Waiting, many: int, seconds: float) -> Row:
    """Start many trainings in a short time, with a trigger of another kind beside them."""
    refused = await waiting.cluster.count_refusals()
    await waiting.triggerer.figures()
    moments = {-i: datetime.now(UTC) + timedelta(seconds=i) for i in range(1, int(seconds))}
    for number, moment in moments.items():
        waiting.triggerer.start(number, _MOMENT, {"target_time": moment.isoformat()})
    took = await waiting.grow(len(waiting.requests) + many, seconds=seconds)
    await waiting.triggerer.wait_for(list(moments), seconds=_EVENT_SECONDS)
    late = [waiting.triggerer.events[n][0] - at.timestamp() for n, at in moments.items()]
    refused = await waiting.cluster.count_refusals() - refused
    values = {
        "started in s": seconds,
        "all run after s": took,
        "a DateTimeTrigger beside it is late by s, p50": median(late),
        "at most": max(late),
        "event loop not free for s, at most": (await waiting.triggerer.figures()).lag,
        "API requests refused (429)": refused,
    }
    met = refused == 0 and max(late) <= 2
    return Row(f"{many} trainings in a storm", values, bar="none refused, 2 s late", met=met)


async def _measure_restart(waiting: _Waiting, stack: AsyncExitStack, ends: int) -> Row:
    """Let trainings end while no triggerer is there."""
    many = len(waiting.requests)
    await waiting.triggerer.end()
    ended = list(waiting.requests)[:ends]
    kept = {number: waiting.requests[number] for number in ended}
    for number in ended:
        await waiting.end(number)
    waiting.requests |= kept
    waiting.triggerer = await stack.enter_async_context(_run_triggerer(waiting.kubeconfig))
    begun = time.time()
    for number in waiting.requests:
        waiting.start(number)
    await waiting.triggerer.wait_for(ended, seconds=_EVENT_SECONDS)
    for number in ended:
        waiting.requests.pop(number)
    events = [waiting.triggerer.events[number][0] - begun for number in ended]
    values = {"to the first event s": min(events), "to the last s": max(events)}
    what = f"{many:,} trainings, the triggerer restarts; {ends} ended meanwhile"
    return Row(what, values)


async def _measure_outage(waiting: _Waiting, ends: int) -> Row:
    """Let trainings end as soon as the API server is back."""
    many = len(waiting.requests)
    await waiting.cluster.stop_api_server()
    await asyncio.sleep(_OUTAGE_SECONDS)
    await waiting.cluster.start_api_server()
    back = time.time()
    ended = list(waiting.requests)[:ends]
    for number in ended:
        await waiting.end(number)
    await waiting.triggerer.wait_for(ended, seconds=_EVENT_SECONDS)
    events = [waiting.triggerer.events[number][0] - back for number in ended]
    what = f"{many:,} trainings, the API server is away for {_OUTAGE_SECONDS} s; {ends} end then"
    return Row(what, {"to the first event s": min(events), "to the last s": max(events)})


async def _measure_peer(cluster: Simulated, name: str, many: int, *, seconds: float) -> Row:
    """Wait for bare pods, or the pods of jobs, with a trigger of the cncf.kubernetes provider."""
    namespace = f"{name}-{many}".lower()
    await asyncio.to_thread(cluster.admin.prepare_namespace, namespace)
    kubeconfig = _read_admin(cluster)
    async with _run_triggerer(kubeconfig) as triggerer:
        for i in range(many):
            await _create_pod(cluster, namespace, f"peer-{i}", name)
        await cluster.wait_for_pods(namespace, many)
        triggerer.start(0, *_build_peer(name, namespace, "peer-0"))
        await asyncio.sleep(10)  # all that is imported at the first use
        base = await triggerer.figures()
        for i in range(1, many):
            triggerer.start(i, *_build_peer(name, namespace, f"peer-{i}"))
        await asyncio.sleep(10)
        before, figures = await cluster.count_requests(), await triggerer.figures()
        await asyncio.sleep(seconds)
        after, later = await cluster.count_requests(), await triggerer.figures()
        asked = Counter({k: v - before[k] for k, v in after.items() if v > before[k]})
        delays = await _time_peer(cluster, triggerer, namespace, name, many)
    values = {
        "API requests a minute": asked.total() * 60 / seconds,
        "CPU %": (later.cpu - figures.cpu) / seconds * 100,
        "KB a training": (later.rss - base.rss) / (many - 1),
        "connections": later.sockets,
        "to event p50 ms": median(delays) * 1000,
        "p99 ms": percentile(delays, 99) * 1000,
    }
    note = ", ".join(f"{n} {what}" for what, n in sorted(asked.items()))
    return Row(f"{name}: {many} of one pod", values, note=note)


def _read_admin(cluster: Simulated) -> Json:
    kubeconfig: Json = yaml.safe_load(cluster.admin.kubeconfig.read_text())
    return kubeconfig


def _build_peer(name: str, namespace: str, pod: str) -> tuple[str, Json]:
    common: Json = {"pod_namespace": namespace, "base_container_name": "base"}
    common |= {"kubernetes_conn_id": _CONNECTION, "get_logs": False}
    if name == "KubernetesPodTrigger":
        begun = datetime.now(UTC).isoformat()
        return f"{_CNCF}.pod.{name}", common | {"pod_name": pod, "trigger_start_time": begun}
    job = {"job_name": pod, "job_namespace": namespace, "pod_names": [pod]}
    return f"{_CNCF}.job.{name}", common | job


async def _create_pod(cluster: Simulated, namespace: str, pod: str, name: str) -> None:
    container = {"name": "base", "image": "simulated"}
    template = {"restartPolicy": "Never", "containers": [container]}
    body: Json = {"metadata": {"name": pod}, "spec": template}
    await cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)
    if name == "KubernetesJobTrigger":
        job = {"metadata": {"name": pod}, "spec": {"suspend": True, "template": {"spec": template}}}
        await cluster.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body=job)


async def _time_peer(
    cluster: Simulated, triggerer: Triggerer, namespace: str, name: str, many: int
) -> Sequence[float]:
    ended: dict[int, float] = {}
    for i in range(min(many, 20)):
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if name == "KubernetesJobTrigger":
            complete = {"lastTransitionTime": now, "status": "True"}
            conditions = [{"type": t} | complete for t in ("SuccessCriteriaMet", "Complete")]
            status = {"conditions": conditions, "startTime": now, "completionTime": now}
            path = f"/apis/batch/v1/namespaces/{namespace}/jobs/peer-{i}/status"
        else:
            end = {"exitCode": 0, "startedAt": now, "finishedAt": now}
            container = {"name": "base", "image": "i", "imageID": "", "restartCount": 0}
            container |= {"ready": False, "state": {"terminated": end}}
            status = {"phase": "Succeeded", "containerStatuses": [container]}
            path = f"/api/v1/namespaces/{namespace}/pods/peer-{i}/status"
        ended[i] = time.time()
        await cluster.patch(path, {"status": status})
        await asyncio.sleep(0.1)
    await triggerer.wait_for(list(ended), seconds=_EVENT_SECONDS)
    return [triggerer.events[i][0] - at for i, at in ended.items()]


async def _measure(effort: Effort) -> list[Row]:
    sizes = [1, 10, 100] if effort.quick else [1, 10, 100, 1000, 3000]
    rows: list[Row] = []
    recovery: list[Row] = []
    async with simulated_cluster() as cluster, AsyncExitStack() as stack:
        for peer, many in _PEERS[effort.quick]:
            say(f"{many} x {peer}")
            rows.append(await _measure_peer(cluster, peer, many, seconds=15))
        waiting = await _open(stack, cluster, "waiting")
        for size in sizes:
            say(f"{size} trainings")
            if size == sizes[-1] and effort.quick:
                recovery.append(await _measure_storm(waiting, 50, 6))
            elif size == 1000:
                recovery.append(await _measure_storm(waiting, _STORM, _STORM_SECONDS))
            await waiting.grow(size)
            await asyncio.sleep(5)
            seconds = effort.choose(60, 20)  # a watch is renewed once a minute
            rows.append(await waiting.measure(seconds=seconds, ends=effort.choose(200, 20)))
            if size == 1000 or (effort.quick and size == sizes[-1]):
                say("the triggerer restarts, the API server goes away")
                recovery.append(await _measure_outage(waiting, 20))
                recovery.append(await _measure_restart(waiting, stack, 20))
    return [*rows, *recovery]


def measure(effort: Effort) -> list[Row]:
    """Wait for more and more trainings on a simulated cluster."""
    return asyncio.run(_measure(effort))


BENCHMARK = Benchmark(
    title="Waiting",
    measure=measure,
    about=(
        "Trainings of two learners on KWOK, waited for by Airflow's own runner of triggers in one "
        "process (the triggerer without its database). Requests are the API server's own count of "
        "those about StatefulSets, pods, events and the like in namespaces. The time to the event "
        "begins just before the last learner's status is written, and holds what the trigger does "
        "then: it reads the logs to their end, and notes the outcome on the StatefulSet."
    ),
)
