"""From what was seen of a training to its phase and reason. Pure: JSON in, values out.

API objects come as JSON because that is what the API server sends; counters that are zero are left
out of it, and conditions hold the texts "True" and "False".
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from airflow_learner_provider.training.completion import ExitRecord, parse_exit_record
from airflow_learner_provider.training.diagnosis import (
    GRACE,
    Reason,
    Trouble,
    explain_ended_pod,
    explain_missing_pod,
    explain_waiting,
    judge_record,
)
from airflow_learner_provider.training.observation import (
    Json,
    Observation,
    condition,
    container_status,
)


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

    @property
    def succeeded(self) -> bool:
        """Whether the command has ended with 0."""
        return self.record is not None and self.trouble is None

    @property
    def result(self) -> Any:
        """What the learner wrote to its result file: parsed JSON, or text."""
        if self.record is None or not self.succeeded or not self.record.message:
            return None
        try:
            return json.loads(self.record.message)
        except ValueError:
            return self.record.message


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
    troubles = [row.trouble for row in rows if row.trouble is not None]
    if all(row.succeeded for row in rows):
        return Status(Phase.SUCCEEDED, rows, ready=True)
    if stateful_set is None and observation.was_seen:
        gone = Trouble(Reason.DELETED, f"StatefulSet {observation.name} was deleted from outside")
        return Status(Phase.FAILED, rows, trouble=gone)
    if stateful_set is None:
        return Status(Phase.PENDING, rows)
    scaled = _compute_scaled(observation, learners=learners)
    final = [trouble for trouble in troubles if trouble.reason not in GRACE]
    if scaled is not None or final:
        root = scaled or find_root_cause(rows)
        return Status(Phase.FAILED, rows, trouble=root)
    ready = is_ready(stateful_set, rows)
    phase = Phase.RUNNING if ready else Phase.PENDING
    return Status(phase, rows, ready=ready, trouble=troubles[0] if troubles else None)


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


def find_root_cause(rows: Sequence[Learner]) -> Trouble | None:
    """The trouble of the learner that failed first; the others may have died because of it.

    A learner that was ended by SIGTERM was ended by somebody, so it comes after those that were
    not, whatever the clock says: times have a resolution of one second.
    """
    failed = [row for row in rows if row.trouble is not None and row.trouble.reason not in GRACE]
    if not failed:
        return None

    def order(row: Learner) -> tuple[bool, str, int]:
        finished = row.record.finished if row.record is not None else None
        return is_collateral(row), finished or "", row.ordinal

    return min(failed, key=order).trouble


def is_collateral(row: Learner) -> bool:
    """Tell whether a learner was ended from outside, most likely because another one failed."""
    terminated = 128 + signal.SIGTERM
    return row.record is not None and row.record.exit_code == terminated


def compute_learner(observation: Observation, ordinal: int) -> Learner:
    """Reduce what was seen of one learner to its row."""
    pod = observation.pods.get(ordinal)
    lost = observation.lost.get(ordinal)
    name = f"{observation.name}-{ordinal}"
    if lost is not None:
        return _compute_lost(lost, ordinal)
    if pod is None:
        return Learner(ordinal, name, trouble=explain_missing_pod(observation, ordinal))
    status = container_status(pod)
    row = Learner(
        ordinal,
        name,
        ready=condition(pod, "Ready").get("status") == "True",
        node=pod.get("spec", {}).get("nodeName"),
    )
    if status is not None:
        row = _with_container(row, status)
    if pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("phase") == "Failed":
        # The record of a pod that is being ended proves nothing: a learner that handles SIGTERM
        # politely exits with 0 (kubernetes/kubernetes#118310).
        ended_before = row.record is not None and _ended_before_deletion(row.record, pod)
        if not ended_before and (row.running or row.record is not None):
            return replace(row, ready=False, trouble=explain_ended_pod(pod, ordinal))
    if row.record is not None:
        return replace(row, trouble=judge_record(row.record, ordinal))
    trouble = explain_waiting(observation, pod, status, ordinal)
    return replace(row, trouble=trouble)


def _with_container(row: Learner, status: Json) -> Learner:
    state = status.get("state", {})
    running = state.get("running") or {}
    record = parse_exit_record(status)
    started = record.started if record is not None else running.get("startedAt")
    # Restarts of the holder are not the learner's: its command runs once.
    restarts = 0 if record is not None else status.get("restartCount", 0)
    return replace(
        row,
        running=bool(running) and record is None,
        restarts=restarts,
        started=started,
        record=record,
    )


def _compute_lost(pod: Json, ordinal: int) -> Learner:
    row = Learner(ordinal, pod["metadata"]["name"], node=pod.get("spec", {}).get("nodeName"))
    status = container_status(pod)
    if status is not None:
        row = replace(_with_container(row, status), running=False)
    if row.record is not None and _ended_before_deletion(row.record, pod):
        return replace(row, trouble=judge_record(row.record, ordinal))
    return replace(row, trouble=explain_ended_pod(pod, ordinal))


def _ended_before_deletion(record: ExitRecord, pod: Json) -> bool:
    deleted = pod["metadata"].get("deletionTimestamp")
    if deleted is None:
        return not condition(pod, "DisruptionTarget")
    # deletionTimestamp is when the grace period ends, so the deletion was asked for earlier.
    grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
    return record.finished is not None and _seconds(record.finished) < _seconds(deleted) - grace


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _compute_scaled(observation: Observation, *, learners: int) -> Trouble | None:
    wanted = (observation.stateful_set or {}).get("spec", {}).get("replicas", 1)
    started = bool(observation.lost) or bool(observation.pods)
    if wanted == learners or (wanted == 0 and not started):
        return None  # with 0 it was created and not started yet
    said = f"StatefulSet {observation.name} was scaled to {wanted} from outside"
    return Trouble(Reason.SCALED, said)
