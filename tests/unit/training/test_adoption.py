"""What a try does about a StatefulSet of its training's name."""

from typing import Any

import pytest

from airflow_learner_provider.training.adoption import Decision, decide_existing, holds
from airflow_learner_provider.training.naming import (
    DURABLE,
    REPORTED,
    Owner,
    build_annotations,
    build_labels,
)

HASH = "the-hash"


def owner(ti: str = "try-2", *, durable: bool = False, **changes: Any) -> Owner:
    values: dict[str, Any] = {
        "dag_id": "digits",
        "task_id": "train",
        "run_id": "run",
        "map_index": -1,
    }
    return Owner(**(values | changes), try_number=2, task_instance_id=ti, durable=durable)


def existing(
    made_by: Owner, *, spec_hash: str = HASH, labels: Any = None, **metadata: Any
) -> dict[str, Any]:
    """A StatefulSet in the cluster."""
    annotations = build_annotations(made_by, spec_hash=spec_hash, version="1.0")
    labels = build_labels("digits", made_by) if labels is None else labels
    return {"metadata": {"labels": labels, "annotations": annotations, **metadata}}


def reported(made_by: Owner) -> dict[str, Any]:
    stateful_set = existing(made_by)
    stateful_set["metadata"]["annotations"][REPORTED] = "true"
    return stateful_set


DURABLE_TRY = owner("try-1", durable=True)
DELETED = {"deletionTimestamp": "2026-01-01T12:00:00Z"}

SITUATIONS: dict[str, tuple[dict[str, Any], Decision]] = {
    "this try's, after its triggerer restarted": (existing(owner()), Decision.ADOPT),
    "this try's, whatever the spec is by now": (
        existing(owner(), spec_hash="another"),
        Decision.ADOPT,
    ),
    "an earlier try's that ran in a worker": (existing(DURABLE_TRY), Decision.ADOPT),
    "the same, of another spec": (existing(DURABLE_TRY, spec_hash="another"), Decision.REPLACE),
    "the same, ended and reported": (reported(DURABLE_TRY), Decision.REPLACE),
    "an earlier try's that ran in a triggerer": (existing(owner("try-1")), Decision.REPLACE),
    "ours, on its way out": (existing(owner(), **DELETED), Decision.WAIT),
    "an earlier try's, on its way out": (existing(DURABLE_TRY, **DELETED), Decision.WAIT),
    "another dag's": (existing(owner(dag_id="other")), Decision.CONFLICT),
    "another task's": (existing(owner(task_id="other")), Decision.CONFLICT),
    "another run's": (existing(owner(run_id="other")), Decision.CONFLICT),
    "another mapped task's": (existing(owner(map_index=1)), Decision.CONFLICT),
    "another task's, on its way out": (existing(owner(task_id="o"), **DELETED), Decision.CONFLICT),
    "not made by this provider": (existing(owner(), labels={"app": "web"}), Decision.CONFLICT),
    "without labels": (existing(owner(), labels={}), Decision.CONFLICT),
    "somebody's who says nothing": ({"metadata": {}}, Decision.CONFLICT),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_decision(situation: str) -> None:
    stateful_set, decision = SITUATIONS[situation]
    assert decide_existing(stateful_set, owner(), spec_hash=HASH) is decision


def test_training_is_held_by_the_try_that_is_written_on_it() -> None:
    assert holds(existing(owner("try-2")), owner("try-2"))
    # An adopting try has written itself there, so a late kill of the earlier one deletes nothing.
    assert not holds(existing(owner("try-2")), owner("try-1"))
    assert not holds({"metadata": {}}, owner())


def test_durable_is_kept_as_text() -> None:
    annotations = existing(DURABLE_TRY)["metadata"]["annotations"]
    assert annotations[DURABLE] == "true"
