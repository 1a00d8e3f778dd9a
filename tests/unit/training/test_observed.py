"""What a real cluster said, change by change, and what is to be made of it.

Each file of tests/data/observed holds the stream of one training's changes on Kubernetes 1.34, as
the watch brought them, with what is not looked at left out.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider.training.observation import Observation
from airflow_learner_provider.training.status import Status, compute_status

OBSERVED = Path(__file__).parents[2] / "data" / "observed"
# Until the first learner is up.
STARTING = ["Pending", "Pending NotReady"]
UP = [*STARTING, "Pending", "Running"]

# Every verdict in turn, the learners' exit codes at the end, and a part of the last message.
STREAMS: dict[str, tuple[list[str], list[int | None], str]] = {
    "success": ([*UP, "Succeeded"], [0, 0], ""),
    "native-success": ([*UP, "Succeeded"], [0, 0], ""),
    "exit-code": ([*UP, "Failed ExitCode"], [None, 7], "ended with exit code 7: broken"),
    "native-exit-code": ([*UP, "Failed ExitCode"], [None, 7], "ended with exit code 7: broken"),
    "oom": ([*UP, "Failed OOMKilled"], [137], "ran out of memory (exit code 137)"),
    "oom-child": ([*UP, "Failed OOMKilled"], [0], "ran out of memory (exit code 0)"),
    "liveness": ([*UP, "Failed Signal"], [143], "SIGTERM (exit code 143; Liveness probe failed:)"),
    "image-not-found": ([*STARTING, "Pending ImageNotFound"], [None], "absent:1 cannot be pulled"),
    "image-never": ([*STARTING, "Pending ImageNotFound"], [None], "pull policy of Never"),
    "image-denied": ([*STARTING, "Pending ImageDenied"], [None], "403 Forbidden"),
    "image-unresolved": ([*STARTING, "Pending ImageUnavailable"], [None], "no such host"),
    "image-name": ([*STARTING, "Failed InvalidImageName"], [None], "must be lowercase"),
    "config-error": ([*STARTING, "Pending ContainerConfigError"], [None], '"absent" not found'),
    "no-shell": ([*STARTING, "Pending ContainerConfigError"], [128], '"bash": executable file not'),
    "native-no-shell": ([*STARTING, "Pending ContainerConfigError"], [128], "stat /absent"),
    "native-holder-gone": ([*STARTING, "Pending ImageNotFound"], [None], "absent:1"),
    "init-crash": ([*STARTING, "Failed InitContainerFailed"], [None], "prepare: exit code 3: no"),
    "sidecar-first": ([*STARTING, "Failed ExitCode"], [3], "ended with exit code 3"),
    "native-sidecar": ([*UP, "Succeeded"], [0], ""),
    "sidecar-crash": (
        [*UP, "Pending NotReady", "Running", "Pending CrashLoop", "Running"],
        [None],
        "",
    ),
    "holder-restarts": (UP, [0, None], ""),
    "evicted-by-api": ([*UP, "Failed Evicted"], [0], "was evicted: Eviction API: evicting"),
    "evicted-by-kubelet": ([*UP, "Failed Evicted"], [143], 'volume "scratch" exceeds the limit'),
    "tainted": ([*UP, "Failed Evicted"], [None], "evicted: Taint manager: deleting due to NoExec"),
    "preempted": ([*UP, "Failed Preempted"], [0], "preempting to accommodate a higher priority"),
    "node-lost": (
        [*UP, "Pending NodeNotReady", "Failed NodeLost"],
        [None],
        "pod node-lost-0 on node ml-lost was lost",
    ),
    "deleted-pod": ([*UP, "Failed Deleted"], [0], "pod deleted-pod-0 on node localhost was del"),
    "native-deleted-pod": ([*UP, "Failed Deleted"], [0], "was deleted while it ran"),
    "recreated": ([*UP, "Failed Deleted"], [143], "was deleted while it ran"),
    "deleted-set": (
        [*UP, "Pending", "Running", "Failed Deleted"],  # to be deleted is a new generation
        [0],
        "StatefulSet deleted-set was deleted from outside",
    ),
    "scaled-down": ([*UP, "Failed Scaled"], [None, 0], "scaled to 1 from outside"),
    "scaled-to-0": ([*UP, "Failed Scaled"], [0], "scaled to 0 from outside"),
    "unschedulable": ([*STARTING, "Pending Unschedulable"], [None], "Insufficient cpu"),
    "gated": (["Pending", "Pending Unschedulable"], [None], "non-empty scheduling gates"),
    "ordered": (STARTING, [None, None], "Readiness probe failed"),
    "quota": ([*STARTING, "Pending QuotaExceeded"], [None, None], "exceeded quota: one, requested"),
    "admission": (["Pending", "Pending AdmissionDenied"], [None], "violates PodSecurity"),
    "no-service-account": (["Pending", "Pending ServiceAccountMissing"], [None], '"absent" not'),
    "no-claim": ([*STARTING, "Pending VolumeNotFound"], [None], 'persistentvolumeclaim "absent"'),
    "no-host-path": ([*STARTING, "Pending VolumeNotFound"], [None], "/nowhere is not a directory"),
    "no-secret-volume": (
        [*STARTING, "Pending VolumeUnavailable", "Pending VolumeNotFound"],
        [None],
        'secret "absent" not found',
    ),
}


def read_stream(name: str) -> list[Any]:
    """The changes of a training: kind, change, object."""
    return [json.loads(line) for line in (OBSERVED / f"{name}.jsonl").read_text().splitlines()]


def follow(name: str) -> Iterator[Status]:
    """The status after each change."""
    changes = read_stream(name)
    sets = [obj for kind, _, obj in changes if kind == "StatefulSet"]
    learners = max(obj["spec"]["replicas"] for obj in sets)
    observation = Observation(name, sets[-1]["metadata"]["uid"])
    for change in changes:
        observation.apply(*change)
        yield compute_status(observation, learners=learners)


@pytest.mark.parametrize("name", STREAMS)
def test_stream_is_judged_right_at_every_moment(name: str) -> None:
    verdicts, exit_codes, fragment = STREAMS[name]
    seen: list[str] = []
    for status in follow(name):
        verdict = f"{status.phase} {status.trouble.reason}" if status.trouble else status.phase
        if seen[-1:] != [verdict]:
            seen.append(verdict)
    assert seen == verdicts
    assert [row.record and row.record.exit_code for row in status.learners] == exit_codes
    assert fragment in (status.trouble.message if status.trouble is not None else "")


def test_every_stream_is_judged() -> None:
    assert {path.stem for path in OBSERVED.iterdir()} == STREAMS.keys()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("recreated", "Deleted"),
        ("evicted-by-api", "Deleted"),  # only an event of the pod itself would tell more
        ("evicted-by-kubelet", "Evicted"),
        ("preempted", "Preempted"),
    ],
)
def test_pod_that_was_replaced_while_nobody_watched_is_noticed(name: str, reason: str) -> None:
    changes = read_stream(name)
    newest = {obj["metadata"]["name"]: (kind, obj) for kind, _, obj in changes if kind != "Event"}
    observation = Observation(name, newest[name][1]["metadata"]["uid"])
    for kind, obj in newest.values():
        observation.apply(kind, "ADDED", obj)
    for kind, _, obj in changes:
        if kind == "Event":
            observation.apply(kind, "ADDED", obj)
    status = compute_status(observation, learners=1)
    assert status.trouble is not None
    assert (status.phase, status.trouble.reason) == ("Failed", reason)
    assert f"an earlier pod {name}-0 was" in status.trouble.message


def test_result_is_kept_while_the_holder_is_started_again() -> None:
    results = [status.learners[0].result for status in follow("holder-restarts")]
    first = results.index({"a": 1})
    assert all(result == {"a": 1} for result in results[first:])
