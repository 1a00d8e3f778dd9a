"""What an asset's event says of the training that made the asset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_LEARNERS = 100
_COLUMNS = ("ordinal", "exit_code", "reason", "node", "restarts", "seconds")


def build_evidence(outcome: Mapping[str, Any]) -> dict[str, Any]:
    """Build the `extra` of an asset's event from a training's outcome: plain JSON, below 64 KiB.

    Of more than 100 learners the first 100 are listed; `learner_count` has them all.
    """
    progress = outcome["progress"] or {}
    rows = outcome["learners"]
    return {
        "training": f"{outcome['namespace']}/{outcome['name']}",
        "result": outcome["result"],
        "step": progress.get("step"),
        "metrics": progress.get("metrics", {}),
        "checkpoint": progress.get("checkpoint"),
        "images": outcome["images"],
        "learner_count": len(rows),
        "learners": [{key: row[key] for key in _COLUMNS} for row in rows[:_MOST_LEARNERS]],
        "gpu_seconds": outcome["gpu_seconds"],
    }
