"""What the page shows is computed from lists of objects, however many there are."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_learner_provider.training.naming import Owner, build_annotations, build_training_name
from airflow_learner_provider.training.observation import Observation
from airflow_learner_provider.training.outcome import write_note
from airflow_learner_provider.training.view import (
    build_detail,
    build_events,
    build_summary,
    group_observations,
    read_task,
    read_usage,
)

Json = dict[str, Any]
CREATED = "2026-12-01T12:00:00Z"
RESOURCES = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}


def owner(number: int = 0) -> Owner:
    return Owner("digits", "train", f"run-{number}", -1, 2, f"id-{number}", durable=False)


def stateful_set(number: int = 0, *, ready: int = 2, **annotations: str) -> Json:
    name = build_training_name(owner(number))
    noted = build_annotations(owner(number), spec_hash="hash", version="1")
    noted["airflow-learner-provider/learners"] = "2"
    noted |= {f"airflow-learner-provider/{key}": value for key, value in annotations.items()}
    containers = [{"name": "sidecar"}, {"name": "learner", "resources": RESOURCES}]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{number}",
            "generation": 1,
            "creationTimestamp": CREATED,
            "annotations": noted,
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": containers}}},
        "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": ready},
    }


def pod(ordinal: int, number: int = 0, *, exit_code: int | None = None, ready: bool = True) -> Json:
    name = build_training_name(owner(number))
    state: Json = {"running": {"startedAt": "2026-12-01T12:00:02Z"}}
    if exit_code is not None:
        ended = {"startedAt": "2026-12-01T12:00:02Z", "finishedAt": "2026-12-01T12:00:09Z"}
        state = {"terminated": {"exitCode": exit_code, "reason": "Error", **ended}}
    return {
        "metadata": {
            "name": f"{name}-{ordinal}",
            "uid": f"{name}-{ordinal}",
            "creationTimestamp": CREATED,
            "ownerReferences": [{"uid": f"uid-{number}"}],
        },
        "spec": {"nodeName": "node-1"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "learner", "restartCount": 0, "state": state}],
        },
    }


def event(about: str, reason: str, at: str, **more: Any) -> Json:
    return {
        "metadata": {"name": f"{about}.{reason}", "uid": f"{about}.{reason}"},
        "involvedObject": {"name": about, "uid": about},
        "reason": reason,
        "message": f"it {reason}",
        "type": "Normal",
        "lastTimestamp": at,
        **more,
    }


def observe(stateful_set: Json, *pods: Json) -> Observation:
    [observation] = group_observations([stateful_set], pods, []).values()
    return observation


def test_a_summary_says_whose_training_it_is_and_how_it_is() -> None:
    observation = observe(stateful_set(), pod(0), pod(1))
    assert build_summary(observation, namespace="ml") == {
        "name": build_training_name(owner()),
        "namespace": "ml",
        "dag_id": "digits",
        "run_id": "run-0",
        "task_id": "train",
        "map_index": "-1",
        "try_number": "2",
        "phase": "Running",
        "reason": "",
        "message": "",
        "learners": 2,
        "ready": 2,
        "created": CREATED,
        "is_leaving": False,
    }


@pytest.mark.parametrize(
    ("pods", "phase", "reason"),
    [
        pytest.param([pod(0), pod(1, ready=False)], "Pending", "NotReady", id="one is not ready"),
        pytest.param([pod(0), pod(1, exit_code=3)], "Failed", "ExitCode", id="one has failed"),
        pytest.param([pod(0, exit_code=0), pod(1, exit_code=0)], "Succeeded", "", id="all ended"),
    ],
)
def test_phase_and_reason_are_those_of_the_verdict(
    pods: list[Json], phase: str, reason: str
) -> None:
    summary = build_summary(observe(stateful_set(ready=1), *pods), namespace="ml")
    assert (summary["phase"], summary["reason"]) == (phase, reason)


def test_a_detail_has_a_row_a_learner() -> None:
    observation = observe(stateful_set(), pod(0), pod(1, exit_code=3))
    detail = build_detail(observation, namespace="ml", events=[])
    rows = [(row["ordinal"], row["state"], row["exit_code"]) for row in detail["learner_rows"]]
    assert rows == [(0, "Ready", None), (1, "Failed", 3)]
    assert detail["resources"] == RESOURCES
    assert detail["message"].startswith(f"training ml/{observation.name}: learner 1 ")


def test_a_training_that_was_kept_shows_what_was_noted_on_it() -> None:
    ended = observe(stateful_set(), pod(0, exit_code=0), pod(1, exit_code=0))
    detail = build_detail(ended, namespace="ml", events=[])
    outcome: Any = {
        "phase": "Succeeded",
        "reason": "",
        "message": "",
        "learners": [
            {key: value for key, value in row.items() if key != "state"}
            for row in detail["learner_rows"]
        ],
        **{key: detail[key] for key in ("timings", "restarts", "result")},
    }
    kept = observe(stateful_set(outcome=write_note(outcome)))
    shown = build_detail(kept, namespace="ml", events=[])
    assert shown == detail | {"ready": 0}


def test_events_are_those_of_the_training_in_time_order() -> None:
    observation = observe(stateful_set())
    name = observation.name
    events = [
        event(f"{name}-1", "Started", "2026-12-01T12:00:03Z", count=2),
        event(name, "SuccessfulCreate", "2026-12-01T12:00:01Z"),
        event(f"{name}-0", "Killing", "2026-12-01T11:00:00Z"),  # of an earlier one of this name
        event("other-0", "Started", "2026-12-01T12:00:04Z"),
    ]
    assert build_events(observation, events) == [
        {
            "time": "2026-12-01T12:00:01Z",
            "type": "Normal",
            "reason": "SuccessfulCreate",
            "learner": None,
            "message": "it SuccessfulCreate",
            "count": 1,
        },
        {
            "time": "2026-12-01T12:00:03Z",
            "type": "Normal",
            "reason": "Started",
            "learner": 1,
            "message": "it Started",
            "count": 2,
        },
    ]


def test_usage_is_the_learners_own() -> None:
    measured = [
        {
            "metadata": {"name": "digits-1"},
            "containers": [
                {"name": "holder", "usage": {"cpu": "1m"}},
                {"name": "learner", "usage": {"cpu": "480m", "memory": "512Mi"}},
            ],
        }
    ]
    assert read_usage(measured) == {1: {"cpu": "480m", "memory": "512Mi"}}


def test_a_thousand_trainings_are_sorted_in_one_go() -> None:
    sets = [stateful_set(number) for number in range(1000)]
    pods = [pod(ordinal, number) for number in range(1000) for ordinal in range(2)]
    events = [event(each["metadata"]["name"], "Started", CREATED) for each in pods]
    found = group_observations(sets, pods, events)
    summaries = [build_summary(each, namespace="ml") for each in found.values()]
    assert {summary["phase"] for summary in summaries} == {"Running"}
    assert len({read_task(each)["run_id"] for each in found.values()}) == 1000
