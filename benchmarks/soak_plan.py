"""What the soak does to each training, and the verdict that has to come of it.

A plan is made up from a seed alone, and so is its verdict. Where something may fail a try that the
plan wants to succeed, the task has a second try, and nothing is done to that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

Json = dict[str, Any]

# Done to the task's processes, at a random moment.
KILLS = ("kill process", "kill supervisor", "kill both", "terminate process")
# Done to the training or the task when all learners run; these also fail a try.
DEEDS = {
    "delete pod": {"Deleted"},
    "delete pod at once": {"Deleted"},
    "evict pod": {"Evicted"},
    "delete StatefulSet": {"Deleted"},
    "scale up": {"Scaled"},
    "scale to zero": {"Scaled"},
}
_SIGNALS = ("KILL", "ABRT", "SEGV", "USR1")
_FOREVER = "sleep 600"


@dataclass(frozen=True)
class Verdict:
    """How a task has to end.

    :param state: of the task.
    :param reasons: one of these is in the outcome; empty where a task leaves none.
    :param words: are in the message of the outcome, or else in the task's log.
    """

    state: str
    reasons: frozenset[str] = frozenset()
    words: str = ""


@dataclass(frozen=True)
class Plan:
    """One training.

    :param arguments: of the operator.
    :param deed: what is done to it from outside; empty for nothing.
    :param ordinal: the learner to which it is done.
    :param delay: seconds from when it could be done.
    """

    name: str
    arguments: Json
    deed: str
    ordinal: int
    delay: float
    verdict: Verdict

    @property
    def is_repeated(self) -> bool:
        """Whether the deed is done as often as the training is up, until the task has ended.

        One that nobody watched, for no triggerer ran, can leave no trace.
        """
        return self.verdict.state == "failed" and self.deed in DEEDS


def build_plans(number: int, seed: int, image: str) -> list[Plan]:
    """Make up so many trainings, of which a third fail."""
    random = Random(seed)  # noqa: S311 - no secret
    failing = set(random.sample(range(number), number // 3))
    return [_build_plan(random, n, image, fails=n in failing) for n in range(number)]


def _build_plan(random: Random, number: int, image: str, *, fails: bool) -> Plan:
    learners = random.choice((1, 2))
    common: Json = {
        "task_id": f"t{number:03}",
        "name": f"t{number:03}",
        "learners": learners,
        "image": image,
        "cpus": "20m",
        "memory": "64Mi",
        "ready_timeout": 300,
        "deferrable": random.random() < 0.5,
        "completion": random.choice(("native", "wrapper")),
        "retries": 0,
    }
    ordinal = random.randrange(learners)
    if fails:
        arguments, deed, verdict = _build_failing(random, ordinal, common)
    else:
        arguments, deed, verdict = _build_good(random, number)
    # A deferrable task is in its worker only for moments.
    longest = 1 if common["deferrable"] and deed in KILLS else 4
    delay = random.uniform(0, longest)
    return Plan(common["name"], common | arguments, deed, ordinal, delay, verdict)


def _build_good(random: Random, number: int) -> tuple[Json, str, Verdict]:
    """Half of them are left alone; the others have their worker killed, or lose a try."""
    deed = random.choice((*KILLS, *DEEDS, "clear")) if random.random() < 0.5 else ""
    command = (
        f"echo begun; sleep {random.uniform(1, 3):.1f}; "
        f"echo '{{\"training\": {number}}}' > $LEARNER_RESULT_FILE"
    )
    return {"command": command, "retries": 1 if deed else 0}, deed, Verdict("success")


def _build_failing(random: Random, ordinal: int, common: Json) -> tuple[Json, str, Verdict]:
    deferrable: bool = common["deferrable"]
    if random.random() < 0.6:
        arguments, verdict = _build_fault(random, ordinal, common["image"])
        # Every try fails alike, so the worker can be killed in the first.
        deed = random.choice(KILLS) if random.random() < 0.3 else ""
        return arguments | {"retries": 1 if deed else 0}, deed, verdict
    deed = random.choice((*DEEDS, "mark failed", "mark success", "terminate process"))
    if deed == "terminate process" and deferrable:
        deed = "mark failed"
    return {"command": _FOREVER}, deed, _expect(deed, deferrable=deferrable)


def _expect(deed: str, *, deferrable: bool) -> Verdict:
    if deed == "mark success":
        return Verdict("success")
    if deed == "mark failed":
        return Verdict("failed")
    if deed == "terminate process":
        return Verdict("failed", words="TrainingKilledError")
    reasons = set(DEEDS[deed])
    if deed == "evict pod" and deferrable:
        reasons.add("Deleted")  # an eviction that nobody watched leaves no trace but a new pod
    return Verdict("failed", frozenset(reasons))


def _build_fault(random: Random, ordinal: int, image: str) -> tuple[Json, Verdict]:
    """Let a training fail by itself, after a random time where it begins at all."""
    alone = f"[ $LEARNER_ORDINAL = {ordinal} ] || {_FOREVER}; sleep {random.uniform(0, 3):.1f}; "
    code = random.randrange(1, 100)
    name = random.choice(_SIGNALS)
    whose = f"learner {ordinal} "
    init = {"name": "prepare", "image": image, "command": ["sh", "-c", "exit 3"]}
    key = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "key"}}}
    volume = {"name": "absent", "secret": {"secretName": "absent"}}
    mount = {"name": "absent", "mountPath": "/absent"}
    fail = f"{alone}exit {code}"
    faults: list[tuple[Json, str, str]] = [
        ({"command": fail}, "ExitCode", f"{whose}ended with exit code {code}"),
        ({"command": fail}, "ExitCode", f"{whose}ended with exit code {code}"),
        ({"command": f"{alone}kill -{name} $$"}, "Signal", f"{whose}was ended by SIG{name}"),
        (
            {"command": f"{alone}x=$(tr '\\0' x < /dev/zero)", "memory": "32Mi"},
            "OOMKilled",
            f"{whose}ran out of memory",
        ),
        ({"image": "localhost/alp/Not-A-Name:1"}, "InvalidImageName", ""),
        (
            {"image": "localhost/alp/absent:1", "image_pull_policy": "Never"},
            "ImageNotFound",
            "localhost/alp/absent:1",
        ),
        ({"pod_template": _pod(env=[key])}, "ContainerConfigError", '"absent" not found'),
        ({"pod_template": {"spec": {"initContainers": [init]}}}, "InitContainerFailed", "code 3"),
        (
            {"pod_template": {"spec": {"serviceAccountName": "absent"}}},
            "ServiceAccountMissing",
            "absent",
        ),
        (
            {"pod_template": _pod(volumes=[volume], volumeMounts=[mount])},
            "VolumeNotFound",
            '"absent" not found',
        ),
        ({"cpus": "900", "ready_timeout": 8}, "Unschedulable", "Insufficient cpu"),
        ({"command": _FOREVER, "execution_timeout": 30}, "ExecutionTimeout", ""),
        ({"memory": "4GiB"}, "", "memory: should be a Kubernetes quantity"),
    ]
    arguments, reason, words = random.choice(faults)
    reasons = frozenset({reason} if reason else ())
    return {"command": "true"} | arguments, Verdict("failed", reasons, words)


def _pod(volumes: Sequence[Json] = (), **container: Any) -> Json:
    containers = [{"name": "learner", **container}]
    return {"spec": {"containers": containers, "volumes": list(volumes)}}
