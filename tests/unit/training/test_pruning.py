"""Nothing is lost that is looked at; what is not, is gone."""

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider.training.observation import Observation
from airflow_learner_provider.training.outcome import Outcome, build_outcome
from airflow_learner_provider.training.pruning import prune
from airflow_learner_provider.training.status import compute_status

OBSERVED = Path(__file__).parents[2] / "data" / "observed"
TIME = "2026-01-01T00:00:00Z"
RUNNING = {
    "name": "learner",
    "imageID": "registry.example.com/digits@sha256:1",
    "restartCount": 0,
    "state": {"running": {"startedAt": TIME}},
}


@pytest.mark.parametrize("stream", [path.stem for path in sorted(OBSERVED.glob("*.jsonl"))])
def test_what_is_kept_of_objects_gives_the_same_verdicts_and_outcomes(stream: str) -> None:
    whole, kept = Observation(stream), Observation(stream)
    for line in (OBSERVED / f"{stream}.jsonl").read_text().splitlines():
        kind, change, obj = json.loads(line)
        whole.apply(kind, change, obj)
        if (pruned := prune(kind, obj)) is not None:
            kept.apply(kind, change, pruned)
        for learners in (1, 2):
            assert compute_status(kept, learners=learners) == compute_status(
                whole, learners=learners
            )
    assert conclude(kept) == conclude(whole)


def conclude(observation: Observation) -> Outcome:
    status = compute_status(observation, learners=2)
    return build_outcome(observation, status, namespace="ml", gpus=1, trouble=status.trouble)


POD: dict[str, Any] = {
    "metadata": {
        "name": "digits-0",
        "uid": "1",
        "creationTimestamp": TIME,
        "labels": {"training_id": "digits"},
        "managedFields": [{"manager": "kubelet"}],
        "ownerReferences": [{"kind": "StatefulSet", "name": "digits", "uid": "2"}],
    },
    "spec": {"nodeName": "localhost", "containers": [{"command": ["bash", "-c", "long"]}]},
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "podIPs": [{"ip": "198.18.0.2"}],
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None}],
        "containerStatuses": [RUNNING | {"containerID": "c", "volumeMounts": [{}]}],
    },
}


def test_of_a_pod_only_what_is_looked_at_is_kept() -> None:
    assert prune("Pod", POD) == {
        "metadata": {
            "name": "digits-0",
            "uid": "1",
            "creationTimestamp": TIME,
            "ownerReferences": [{"uid": "2"}],
        },
        "spec": {"nodeName": "localhost"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [RUNNING],
        },
    }


def test_what_was_pruned_once_is_as_it_was() -> None:
    pruned = prune("Pod", POD)
    assert pruned is not None
    assert prune("Pod", pruned) == pruned


def test_events_that_say_nothing_about_a_training_are_not_kept() -> None:
    involved = {"kind": "Pod", "name": "digits-0", "uid": "1"}
    metadata = {"name": "digits-0.1", "uid": "3", "managedFields": []}
    scheduled = {"metadata": metadata, "involvedObject": involved, "reason": "Scheduled"}
    failed = {"type": "Warning", "reason": "Failed", "message": "no", "lastTimestamp": TIME}
    assert prune("Event", scheduled | {"type": "Normal"}) is None
    assert prune("Event", scheduled | failed) == {
        "metadata": {"name": "digits-0.1", "uid": "3"},
        "involvedObject": involved,
        **failed,
    }
