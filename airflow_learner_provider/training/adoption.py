"""What to do about a StatefulSet that exists already under the name of a training."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from airflow_learner_provider.training.naming import (
    DURABLE,
    MANAGED_BY,
    MANAGER,
    PREFIX,
    REPORTED,
    SPEC_HASH,
    TASK_INSTANCE_ID,
    Owner,
)


class Decision(Enum):
    """What a try does about a StatefulSet of its training's name."""

    WAIT = "it is being deleted: wait, then create"
    ADOPT = "it is this training: go on with it"
    REPLACE = "it is an old one of this task: delete it, wait, then create"
    CONFLICT = "it is somebody else's: touch nothing"


def decide_existing(stateful_set: Mapping[str, Any], owner: Owner, *, spec_hash: str) -> Decision:
    """Decide; the first rule that matches wins.

    A try in a worker can die without ending, so the next one goes on with what it finds. A try in a
    triggerer is not over when a triggerer dies, so a new one means that the user cleared the task
    and wants it to run again.
    """
    metadata = stateful_set["metadata"]
    annotations = metadata.get("annotations") or {}
    if (metadata.get("labels") or {}).get(MANAGED_BY) != MANAGER:
        return Decision.CONFLICT
    ours = {
        "dag-id": owner.dag_id,
        "task-id": owner.task_id,
        "run-id": owner.run_id,
        "map-index": str(owner.map_index),
    }
    if any(annotations.get(PREFIX + key) != value for key, value in ours.items()):
        return Decision.CONFLICT
    if metadata.get("deletionTimestamp"):
        return Decision.WAIT
    if holds(stateful_set, owner):
        return Decision.ADOPT
    same = annotations.get(SPEC_HASH) == spec_hash
    if annotations.get(DURABLE) == "true" and same and REPORTED not in annotations:
        return Decision.ADOPT
    return Decision.REPLACE


def holds(stateful_set: Mapping[str, Any], owner: Owner) -> bool:
    """Tell whether a try holds a training; one that was adopted by a later try is no longer its."""
    annotations = stateful_set["metadata"].get("annotations") or {}
    return bool(annotations.get(TASK_INSTANCE_ID) == owner.task_instance_id)
