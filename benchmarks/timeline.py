"""Where the time of one training went, from what its task's log and its learners' lines say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

# What a phase is, by its first moment, in their order.
PHASES: Mapping[str, str] = {
    "queued": "queued until the worker's process is up (Airflow)",
    "started": "the worker parses the DAG file, builds the spec and defers, if it does",
    "deferred": "deferred until the trigger runs (Airflow)",
    "followed": "connection, imports, rights, and the objects are created",
    "created": "the learners' pods start (Kubernetes), and meet",
    "begun": "the command runs",
    "ended": "the end is known",
    "known": "the StatefulSet is deleted",
    "deleted": "its pods are gone (Kubernetes)",
    "told": "the task ends (Airflow): by a worker, or in the triggerer",
}
_LEARNER_TIME = re.compile(r"\[\d+\] (begin|end) (\d+[.,]\d+)")


def read_moments(log: Sequence[Mapping[str, Any]], *, queued: float, done: float) -> list[float]:
    """Find when each phase began, as Unix times, and when the last one ended.

    A phase that there was not begins with the next one.

    :param log: the entries of the task's log, as the REST API gives them.
    """
    found: dict[str, float] = {"queued": queued}
    for entry in log:
        event = str(entry["event"])
        if match := _LEARNER_TIME.match(event):
            _note_learner(found, match[1], float(match[2].replace(",", ".")))
        elif entry.get("timestamp") and (phase := _find_phase(event)):
            at = datetime.fromisoformat(entry["timestamp"]).timestamp()
            found.setdefault(phase, at)
            if phase == "deferred":
                found.pop("told", None)  # so far it was the end of what the first worker does
    moments = [done]
    for phase in reversed(list(PHASES)):
        moments.append(min(found.get(phase, moments[-1]), moments[-1]))
    return moments[::-1]


def _note_learner(found: dict[str, float], which: str, at: float) -> None:
    if which == "begin":
        found["begun"] = min(found.get("begun", at), at)
    else:
        found["ended"] = max(found.get("ended", at), at)


def _find_phase(event: str) -> str | None:
    beginnings = {
        "::group::Pre Execute": "started",
        "Pausing task as DEFERRED": "deferred",
        "Created StatefulSet": "created",
        "Learners:": "known",
        "Deleted StatefulSet": "deleted",
        "Trigger fired event": "told",
        "::group::Post Execute": "told",
    }
    if event.startswith("trigger ") and event.endswith("starting"):
        return "followed"
    return next((phase for text, phase in beginnings.items() if event.startswith(text)), None)
