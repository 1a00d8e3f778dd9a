"""What a training hands on: plain JSON for XCom and the trigger's event, and words for people."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict

from airflow_learner_provider.exceptions import (
    LearnerConfigError,
    LearnerDisruptedError,
    LearnerExitError,
    LearnerImageError,
    LearnerOutOfMemoryError,
    TrainingFailedError,
    TrainingKilledError,
    TrainingNotReadyError,
    TrainingRemovedError,
    TrainingTimeoutError,
)
from airflow_learner_provider.training.artifacts import merge_artifacts
from airflow_learner_provider.training.completion import ExitRecord
from airflow_learner_provider.training.diagnosis import (
    Reason,
    Trouble,
    name_signal,
)
from airflow_learner_provider.training.naming import OUTCOME
from airflow_learner_provider.training.observation import (
    Json,
    Observation,
    condition,
    container_status,
)
from airflow_learner_provider.training.progress import ProgressCurve
from airflow_learner_provider.training.status import Learner, Phase, Status

_COLUMNS = (
    *("ordinal", "exit_code", "signal", "reason", "node", "restarts"),
    *("started", "finished", "message"),
)
_LONGEST_CELL = 120
_LONGEST_NOTE = 200 * 1024

# What a person can do about it, by reason.
REMEDIES: dict[Reason, str] = {
    Reason.EXIT_CODE: "See the learner's log above.",
    Reason.SIGNAL: "See the learner's log above; SIGTERM, and SIGKILL without OOMKilled, come from "
    "outside.",
    Reason.OOM_KILLED: "Raise memory=, or make the batch or the model smaller.",
    Reason.IMAGE_NAME: "Correct image=.",
    Reason.IMAGE_NOT_FOUND: "Check the name and tag in image=, and that the image was pushed.",
    Reason.IMAGE_DENIED: "Name a pull secret with image_pull_secret=, or correct it.",
    Reason.IMAGE_UNAVAILABLE: "Check that the registry can be reached from the nodes.",
    Reason.CONTAINER_CONFIG: "Check the Secrets and ConfigMaps that the pod template names, and "
    "that the image has bash.",
    Reason.CRASH_LOOP: "See that container's log.",
    Reason.INIT_CONTAINER: "See the init container's log.",
    Reason.EVICTED: "The node ran short of a resource, or was drained; raise requests, or retry.",
    Reason.PREEMPTED: "A pod of higher priority took the place; retry, or raise the priority.",
    Reason.NODE_LOST: "The node failed; retry.",
    Reason.NODE_NOT_READY: "The node fails, or cannot be reached; retry.",
    Reason.UNSCHEDULABLE: "Ask for less (cpus=, memory=, gpus=, learners=), free the cluster, or "
    "raise ready_timeout=.",
    Reason.QUOTA: "Ask for less, free the namespace, or raise its ResourceQuota.",
    Reason.ADMISSION: "The cluster's admission refuses the pods; change what it names.",
    Reason.SERVICE_ACCOUNT: "Create the service account, or correct it in pod_template=.",
    Reason.VOLUME_NOT_FOUND: "Create the claim, Secret, ConfigMap or directory, or correct its "
    "name.",
    Reason.VOLUME: "Check the volume: claim, host path, Secret or driver.",
    Reason.NOT_READY: "Check the readiness probe, or raise ready_timeout=.",
    Reason.DELETED: "Somebody deleted it; clear the task to run it again.",
    Reason.SCALED: "Somebody scaled it; clear the task to run it again.",
    Reason.ARTIFACTS: "Correct artifacts=: a name or pattern for each file or kind of files in "
    "RESULT_DIR, and not for many of them.",
    Reason.TIMEOUT: "Raise execution_timeout=.",
    Reason.KILLED: "Clear the task to run it again.",
}

# The exception that stands for it.
ERRORS: dict[Reason, type[TrainingFailedError]] = {
    Reason.EXIT_CODE: LearnerExitError,
    Reason.SIGNAL: LearnerExitError,
    Reason.INIT_CONTAINER: LearnerExitError,
    Reason.OOM_KILLED: LearnerOutOfMemoryError,
    Reason.IMAGE_NAME: LearnerImageError,
    Reason.IMAGE_NOT_FOUND: LearnerImageError,
    Reason.IMAGE_DENIED: LearnerImageError,
    Reason.IMAGE_UNAVAILABLE: LearnerImageError,
    Reason.CONTAINER_CONFIG: LearnerConfigError,
    Reason.ADMISSION: LearnerConfigError,
    Reason.SERVICE_ACCOUNT: LearnerConfigError,
    Reason.VOLUME_NOT_FOUND: LearnerConfigError,
    Reason.EVICTED: LearnerDisruptedError,
    Reason.PREEMPTED: LearnerDisruptedError,
    Reason.NODE_LOST: LearnerDisruptedError,
    Reason.NODE_NOT_READY: LearnerDisruptedError,
    Reason.UNSCHEDULABLE: TrainingNotReadyError,
    Reason.QUOTA: TrainingNotReadyError,
    Reason.VOLUME: TrainingNotReadyError,
    Reason.CRASH_LOOP: TrainingNotReadyError,
    Reason.NOT_READY: TrainingNotReadyError,
    Reason.DELETED: TrainingRemovedError,
    Reason.SCALED: TrainingRemovedError,
    Reason.ARTIFACTS: LearnerExitError,
    Reason.TIMEOUT: TrainingTimeoutError,
    Reason.KILLED: TrainingKilledError,
}


# By which phases a wait is over.
_REACHED = {
    "created": {Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED},
    "ready": {Phase.RUNNING, Phase.SUCCEEDED},
    "completed": {Phase.SUCCEEDED},
}


class Outcome(TypedDict):
    """The result of a training task. Times are RFC 3339 texts, durations seconds.

    `result` is what the first learner that wrote a result wrote; each row of `learners` has its
    own. `reason` and `message` are empty unless the training failed. `progress` is what the first
    learner said last of it, and `curve` has at most 100 of its steps with their metrics.
    `artifacts` has the name, size (bytes), sha256 and uri of each file that the task named, and
    `images` those that the learners ran, by their digests.
    """

    name: str
    namespace: str
    phase: str
    reason: str
    message: str
    result: Any
    learners: list[dict[str, Any]]
    timings: dict[str, float | None]
    gpu_seconds: float
    restarts: list[dict[str, Any]]
    progress: dict[str, Any] | None
    curve: list[dict[str, float]]
    artifacts: list[dict[str, Any]]
    images: list[str]


def build_outcome(
    observation: Observation,
    status: Status,
    *,
    namespace: str,
    gpus: int,
    trouble: Trouble | None = None,
    restarts: Sequence[dict[str, Any]] = (),
    curve: ProgressCurve | None = None,
    results_uri: str = "",
) -> Outcome:
    """Build the outcome from the last status.

    :param gpus: GPUs of one learner.
    :param trouble: why the training failed, if it did.
    :param restarts: why the group of learners was started again, each time.
    :param curve: how far it came, by what the first learner printed.
    :param results_uri: where the artifacts are.
    """
    rows = [_build_row(row) for row in status.learners]
    ended = sorted((row.record for row in status.learners if row.record), key=_finished)
    results = [row.result for row in status.learners if row.result is not None]
    return Outcome(
        name=observation.name,
        namespace=namespace,
        phase=Phase.FAILED if trouble is not None else status.phase,
        reason=trouble.reason if trouble is not None else "",
        message=describe(observation, trouble, namespace=namespace) if trouble else "",
        result=results[0] if results else None,
        learners=rows,
        timings=_build_timings(observation, status.learners),
        gpu_seconds=sum((row["seconds"] or 0.0) * gpus for row in rows),
        restarts=list(restarts),
        progress=curve.to_json() if curve else None,
        curve=curve.to_rows() if curve else [],
        images=_list_images(observation, status.learners),
        artifacts=merge_artifacts(
            (record.listing for record in ended if record.listing), results_uri=results_uri
        ),
    )


def _list_images(observation: Observation, learners: Sequence[Learner]) -> list[str]:
    pods = [observation.pods.get(row.ordinal, {}) for row in learners]
    found = {(container_status(pod) or {}).get("imageID") for pod in pods}
    return sorted(image for image in found if image)


def build_error(outcome: Outcome) -> TrainingFailedError:
    """The exception that stands for a failed outcome."""
    kind = ERRORS[Reason(outcome["reason"])]
    return kind(outcome["message"], outcome=outcome)


def write_note(outcome: Outcome) -> str:
    """Write an outcome as an annotation; all of them together may have 256 KiB.

    Of very many learners their words are left out, and if need be their rows.
    """
    rows = outcome["learners"]
    short = [row | {"message": "", "result": None} for row in rows]
    texts = (json.dumps({**outcome, "learners": learners}) for learners in (rows, short, []))
    return next((text for text in texts if len(text) <= _LONGEST_NOTE), "")


def read_note(stateful_set: Json | None) -> Outcome | None:
    """Return the outcome of a training that has ended and was kept, from its StatefulSet."""
    metadata = stateful_set["metadata"] if stateful_set is not None else {}
    text = (metadata.get("annotations") or {}).get(OUTCOME)
    outcome: Outcome | None = json.loads(text) if text else None
    return outcome


def find_error(outcome: Outcome, *, target: str) -> TrainingFailedError | None:
    """Return the exception for an outcome that is not what was waited for, else None.

    A phase that is not known, or that falls short of the target, is a failure as well.

    :param target: "created", "ready" or "completed".
    """
    phase = outcome.get("phase")
    if phase == Phase.FAILED:
        return build_error(outcome)
    if phase in _REACHED[target]:
        return None
    said = f"training {outcome.get('name')}: its phase is {phase!r}, which is not {target}"
    return TrainingFailedError(said, outcome=outcome)


def describe(observation: Observation, trouble: Trouble, *, namespace: str) -> str:
    """Say which learner, what, and what to do."""
    where = f"training {namespace}/{observation.name}"
    who = "" if trouble.ordinal is None else f" learner {trouble.ordinal}"
    said = f"{trouble.message.strip()} [{trouble.reason}]"
    return f"{where}:{who} {said}. {REMEDIES[trouble.reason]}"


def describe_unready(status: Status, *, seconds: float) -> Trouble:
    """The trouble of a start that took too long: every learner that is not up, and why.

    Its reason is that of the first such learner of which more is known than that it is not ready.
    """
    down = [row for row in status.learners if not row.ready and not row.succeeded]
    words = [f"learner {row.ordinal}: {_why_down(row)}" for row in down]
    reasons = [row.trouble.reason for row in down if row.trouble is not None]
    reason = next((r for r in reasons if r is not Reason.NOT_READY), Reason.NOT_READY)
    up = len(status.learners) - len(down)
    said = f"{up} of {len(status.learners)} learners were ready after {seconds:.0f} s"
    return Trouble(reason, "; ".join([said, *words]))


def _why_down(row: Learner) -> str:
    if row.trouble is None:
        return "the pod was not created"
    return f"{row.trouble.message.strip()} [{row.trouble.reason}]"


def build_table(learners: Sequence[dict[str, Any]]) -> list[str]:
    """Lay the learners' rows out as a table for the task log, each message on one line."""
    cells = [_COLUMNS, *([_cell(row, column) for column in _COLUMNS] for row in learners)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(_COLUMNS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _cell(row: dict[str, Any], column: str) -> str:
    value = row[column]
    if value is None or value == "":
        return "-"
    if column == "message":
        first, *rest = value.splitlines()  # of a traceback the last line says most
        words = f"{first} ... {rest[-1]}" if rest else first
        return textwrap.shorten(words, _LONGEST_CELL, placeholder=" ...")
    if column == "reason" and row["collateral"]:
        return f"{value} (collateral)"
    return str(value)


def _finished(record: ExitRecord) -> str:
    return record.finished or ""


def _build_row(row: Learner) -> dict[str, Any]:
    record = row.record
    reason: str | None = None
    if row.trouble is not None:
        reason = row.trouble.reason
    elif record is not None:
        reason = "Completed"
    return {
        "ordinal": row.ordinal,
        "exit_code": record.exit_code if record is not None else None,
        "signal": name_signal(record) if record is not None else None,
        "reason": reason,
        "message": row.trouble.message.strip() if row.trouble is not None else "",
        "collateral": row.collateral,
        "node": row.node,
        "restarts": row.restarts,
        "started": row.started,
        "finished": record.finished if record is not None else None,
        "seconds": _between(row.started, record.finished if record is not None else None),
        "result": row.result,
    }


def _build_timings(
    observation: Observation, learners: Sequence[Learner]
) -> dict[str, float | None]:
    """Queued: created to all scheduled. Ready: created to all ready. Run: first start to last end.

    Kubernetes keeps these times in whole seconds.
    """
    created = (observation.stateful_set or {}).get("metadata", {}).get("creationTimestamp")
    pods = [observation.pods.get(row.ordinal, {}) for row in learners]
    scheduled = [condition(pod, "PodScheduled") for pod in pods]
    started = [row.started for row in learners]
    finished = [row.record.finished if row.record is not None else None for row in learners]
    return {
        "queued": _between(created, _last([_true_since(c) for c in scheduled])),
        "ready": _between(created, _last(started)),
        "run": _between(min((s for s in started if s), default=None), _last(finished)),
    }


def _true_since(entry: Any) -> str | None:
    return entry.get("lastTransitionTime") if entry.get("status") == "True" else None


def _last(times: Sequence[str | None]) -> str | None:
    """The last of the times, or None when one is missing: not all have come so far."""
    return max((t for t in times if t), default=None) if all(times) else None


def _between(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
