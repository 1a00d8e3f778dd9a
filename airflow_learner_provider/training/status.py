"""From what was seen of a training to its phase and reason. Pure: JSON in, values out.

API objects come as JSON because that is what the API server sends; counters that are zero are left
out of it, and conditions hold the texts "True" and "False".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from airflow_learner_provider.training.artifacts import explain_missing
from airflow_learner_provider.training.completion import ExitRecord
from airflow_learner_provider.training.diagnosis import (
    GRACE,
    Reason,
    Trouble,
    explain_earlier_pod,
    explain_ended_pod,
    explain_missing_pod,
    explain_waiting,
    judge_record,
    name_signal,
)
from airflow_learner_provider.training.naming import LEARNERS, REPORTED
from airflow_learner_provider.training.observation import (
    ENDED,
    Json,
    Observation,
    asked_to_end,
    condition,
    container_status,
    is_of_earlier_start,
    unix_time,
    warnings_about,
)

# Signals that most often follow on another learner's failure, the least telling last.
_FOLLOWS_ON = ("SIGABRT", "SIGTERM")


class Phase(StrEnum):
    """Where a training stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True)
class Learner:
    """One learner.

    :param record: how its command ended, once it has.
    :param trouble: what keeps it from starting, or ended it.
    :param failed: Unix time of that end; 0 when it did not come to a beginning.
    :param collateral: whether it failed because another learner had, as far as can be told.
    """

    ordinal: int
    pod: str
    ready: bool = False
    running: bool = False
    restarts: int = 0
    node: str | None = None
    started: str | None = None
    record: ExitRecord | None = None
    trouble: Trouble | None = None
    failed: float = 0
    collateral: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the command has ended with 0."""
        return self.record is not None and self.trouble is None

    @property
    def result(self) -> Any:
        """What the learner wrote to its result file: JSON, or text without its line's end."""
        if self.record is None or not self.succeeded or not self.record.message:
            return None
        try:
            return json.loads(self.record.message)
        except ValueError:
            return self.record.message.rstrip("\n")  # the wrapper's shell cannot keep it


@dataclass(frozen=True)
class Status:
    """A training at one moment."""

    phase: Phase
    learners: Sequence[Learner]
    ready: bool = False
    trouble: Trouble | None = None


def compute_status(observation: Observation, *, learners: int) -> Status:
    """Reduce what was seen of a training to its status; the first rule that matches wins.

    :param learners: how many learners the user asked for.
    """
    stateful_set = observation.stateful_set
    rows = [compute_learner(observation, ordinal) for ordinal in range(learners)]
    if not rows or (stateful_set is None and not observation.was_seen):
        return Status(Phase.PENDING, rows)
    if all(row.succeeded for row in rows):
        missing = explain_missing(
            row.record.listing for row in rows if row.record and row.record.listing
        )
        if missing is not None:
            return Status(Phase.FAILED, rows, trouble=Trouble(Reason.ARTIFACTS, missing))
        return Status(Phase.SUCCEEDED, rows, ready=True)
    root = find_root_cause(rows)
    trouble = root.trouble if root is not None else None
    if trouble is None or trouble.reason is Reason.DELETED:
        trouble = _explain_removal(observation, learners=learners, pods_go=root is not None)
        trouble = trouble or (root.trouble if root is not None else None)
    if trouble is not None or stateful_set is None:
        rows = [replace(row, collateral=is_collateral(row, root)) for row in rows]
        return Status(Phase.FAILED, rows, trouble=trouble)
    ready = is_ready(stateful_set, rows)
    phase = Phase.RUNNING if ready else Phase.PENDING
    passing = next((row.trouble for row in rows if row.trouble is not None), None)
    return Status(phase, rows, ready=ready, trouble=passing)


def count_learners(stateful_set: Json | None) -> int:
    """How many learners a training wants: StatefulSets of ours are created with 0 replicas."""
    if stateful_set is None:
        return 0
    wanted = (stateful_set["metadata"].get("annotations") or {}).get(LEARNERS)
    return int(wanted) if wanted is not None else int(stateful_set["spec"].get("replicas", 1))


def is_ready(stateful_set: Json, rows: Sequence[Learner]) -> bool:
    """Tell whether all learners are up; one that has already ended with 0 has been.

    The counters are believed only when they are about the newest spec, and only as many as the
    spec wants. `availableReplicas` counts those that were ready for `minReadySeconds`.
    """
    status = stateful_set.get("status", {})
    if status.get("observedGeneration", 0) < stateful_set["metadata"].get("generation", 0):
        return False
    wanted = stateful_set["spec"].get("replicas", 1)
    if not rows or wanted != len(rows) or status.get("updatedReplicas", 0) != wanted:
        return False
    ended = sum(row.succeeded for row in rows)
    if status.get("availableReplicas", 0) < wanted - ended:
        return False
    return all(row.succeeded or (row.ready and row.restarts == 0) for row in rows)


def find_root_cause(rows: Sequence[Learner]) -> Learner | None:
    """The learner that failed first; the others may have died because of it.

    A learner that was ended by SIGTERM was ended by somebody, so it comes after those that were
    not, whatever the clock says. Times have a resolution of one second: of the failures of one
    second the most telling comes first.
    """
    failed = [row for row in rows if row.trouble is not None and row.trouble.reason not in GRACE]

    def order(row: Learner) -> tuple[bool, float, int, int]:
        return _signal(row) == "SIGTERM", row.failed, _rank(row), row.ordinal

    return min(failed, key=order, default=None)


def is_collateral(row: Learner, root: Learner | None) -> bool:
    """Tell whether a learner failed because another one had: SIGTERM, or an end that came later.

    What says itself why, such as OOMKilled or an eviction, is nobody else's fault.
    """
    if root is None or row.ordinal == root.ordinal or _rank(row) == 0:
        return False
    return _signal(row) == "SIGTERM" or (row.failed, _rank(row)) > (root.failed, _rank(root))


def _rank(row: Learner) -> int:
    """How telling a failure is; 0 is the most."""
    if row.trouble is None or row.trouble.reason not in {Reason.EXIT_CODE, Reason.SIGNAL}:
        return 0
    if row.trouble.reason is Reason.EXIT_CODE:
        return 2
    name = _signal(row)
    return 3 + _FOLLOWS_ON.index(name) if name in _FOLLOWS_ON else 1


def _signal(row: Learner) -> str | None:
    ended_by_signal = row.trouble is not None and row.trouble.reason is Reason.SIGNAL
    return name_signal(row.record) if ended_by_signal and row.record is not None else None


def compute_learner(observation: Observation, ordinal: int) -> Learner:
    """Reduce what was seen of one learner to its row."""
    lost = observation.lost.get(ordinal)
    pod = lost or observation.pods.get(ordinal)
    name = f"{observation.name}-{ordinal}"
    if pod is None or is_of_earlier_start(observation, pod):
        return Learner(ordinal, name, trouble=explain_missing_pod(observation, ordinal))
    row = _build_learner(observation, pod, ordinal)
    if row.record is not None and not row.record.cut_short:
        trouble = judge_record(row.record, ordinal, warnings_about(observation, pod))
        if trouble is None:
            return row
        earlier = explain_earlier_pod(observation, pod, ordinal)
        return replace(row, trouble=earlier or trouble, failed=0 if earlier else _finished(row))
    # A pod that is only marked for disruption may still be spared.
    ends = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ENDED
    if lost is not None or row.record is not None or (row.running and ends):
        trouble = explain_ended_pod(pod, ordinal)
        failed = asked_to_end(observation, pod) or _finished(row)
        return replace(row, ready=False, running=False, trouble=trouble, failed=failed)
    trouble = explain_earlier_pod(observation, pod, ordinal)
    if trouble is None and row.running and row.restarts % 2 == 1:
        said = "was started again, and how its command ended is not known"
        trouble = Trouble(Reason.NODE_LOST, said, ordinal)
    if trouble is None:
        trouble = explain_waiting(observation, pod, container_status(pod), ordinal)
    return replace(row, trouble=trouble)


def _finished(row: Learner) -> float:
    finished = row.record.finished if row.record is not None else None
    return unix_time(finished) if finished is not None else 0


def _build_learner(observation: Observation, pod: Json, ordinal: int) -> Learner:
    status = container_status(pod)
    row = Learner(
        ordinal,
        pod["metadata"]["name"],
        ready=condition(pod, "Ready").get("status") == "True",
        node=pod.get("spec", {}).get("nodeName"),
        record=observation.records.get(pod["metadata"]["uid"]),
    )
    return row if status is None else _with_container(row, status)


def _with_container(row: Learner, status: Json) -> Learner:
    running = status.get("state", {}).get("running") or {}
    if row.record is not None:
        # Restarts of the holder are not the learner's: its command runs once.
        return replace(row, started=row.record.started)
    return replace(
        row,
        running=bool(running),
        restarts=status.get("restartCount", 0),
        started=running.get("startedAt"),
    )


def _explain_removal(observation: Observation, *, learners: int, pods_go: bool) -> Trouble | None:
    """Say how somebody removed the training, or a part of it, from outside.

    :param pods_go: whether a learner's pod was deleted.
    """
    stateful_set = observation.stateful_set
    name = observation.name
    gone = Trouble(Reason.DELETED, f"StatefulSet {name} was deleted from outside")
    if stateful_set is None:
        return gone
    metadata = stateful_set["metadata"]
    if metadata.get("deletionTimestamp"):
        # Whoever ran the training deletes it at its end, which the pods tell: by another watch.
        return gone if pods_go else None
    wanted = stateful_set["spec"].get("replicas", 1)
    pods = [pod for pod in observation.pods.values() if not is_of_earlier_start(observation, pod)]
    at_rest = wanted == 0 and not pods and not observation.lost
    if wanted == learners or at_rest or REPORTED in (metadata.get("annotations") or {}):
        return None  # at rest it was created, or is started again, and has no learners yet
    return Trouble(Reason.SCALED, f"StatefulSet {name} was scaled to {wanted} from outside")
