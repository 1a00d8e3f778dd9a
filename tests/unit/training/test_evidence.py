"""What an asset's event says of the training that made the asset."""

import json
from typing import Any

from airflow_learner_provider.training.evidence import build_evidence


def outcome_of(learners: int, progress: dict[str, Any] | None) -> dict[str, Any]:
    row = {
        "exit_code": 0,
        "reason": "Completed",
        "node": "gpu-7",
        "restarts": 0,
        "seconds": 61.0,
        "message": "not for everybody",
    }
    return {
        "name": "digits",
        "namespace": "ml",
        "result": {"accuracy": 0.97},
        "learners": [{"ordinal": ordinal} | row for ordinal in range(learners)],
        "images": ["registry.example.com/ml/digits@sha256:9f86"],
        "gpu_seconds": 122.0,
        "progress": progress,
    }


def test_evidence_is_result_metrics_images_checkpoint_and_learners() -> None:
    progress = {"step": 120, "total": 120, "metrics": {"loss": 0.31}, "checkpoint": 100}
    assert build_evidence(outcome_of(1, progress)) == {
        "training": "ml/digits",
        "result": {"accuracy": 0.97},
        "step": 120,
        "metrics": {"loss": 0.31},
        "checkpoint": 100,
        "images": ["registry.example.com/ml/digits@sha256:9f86"],
        "learner_count": 1,
        "learners": [
            {
                "ordinal": 0,
                "exit_code": 0,
                "reason": "Completed",
                "node": "gpu-7",
                "restarts": 0,
                "seconds": 61.0,
            }
        ],
        "gpu_seconds": 122.0,
    }


def test_evidence_is_bounded_and_needs_no_progress() -> None:
    evidence = build_evidence(outcome_of(1000, None))
    assert (evidence["learner_count"], len(evidence["learners"])) == (1000, 100)
    assert (evidence["step"], evidence["metrics"], evidence["checkpoint"]) == (None, {}, None)
    assert len(json.dumps(evidence)) < 64 * 1024
