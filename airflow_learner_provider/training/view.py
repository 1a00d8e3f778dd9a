"""What a page shows of trainings: snapshots of the cluster's objects in, plain JSON out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_learner_provider.training.completion import CONTAINER
from airflow_learner_provider.training.naming import PREFIX, is_learner_of, ordinal_of
from airflow_learner_provider.training.observation import Json, Observation
from airflow_learner_provider.training.outcome import Outcome, build_outcome, read_note
from airflow_learner_provider.training.status import (
    Learner,
    Phase,
    Status,
    compute_status,
    count_learners,
)

_MOST_EVENTS = 200
_TASK = ("dag-id", "run-id", "task-id", "map-index")


def group_observations(
    stateful_sets: Iterable[Json], pods: Iterable[Json], events: Iterable[Json]
) -> dict[str, Observation]:
    """Sort the lists of one namespace by training; each object is looked at once.

    A snapshot has forgotten pods that were replaced: that a learner was lost, only those know who
    have followed the training.
    """
    found: dict[str, Observation] = {}
    for stateful_set in stateful_sets:
        name = stateful_set["metadata"]["name"]
        observation = found[name] = Observation(name, stateful_set["metadata"]["uid"])
        observation.apply("StatefulSet", "ADDED", stateful_set)
    for pod in pods:
        _apply(found, "Pod", pod, pod["metadata"]["name"])
    for event in events:
        _apply(found, "Event", event, event["involvedObject"].get("name", ""))
    return found


def _apply(found: Mapping[str, Observation], kind: str, obj: Json, about: str) -> None:
    observation = found.get(about) or found.get(about.rpartition("-")[0])
    if observation is not None:
        observation.apply(kind, "ADDED", obj)


def read_task(observation: Observation) -> dict[str, str]:
    """Whose training it is: dag, run, task and map index, word for word; empty if nobody's."""
    annotations = _annotations(observation)
    return {key.replace("-", "_"): annotations.get(PREFIX + key, "") for key in _TASK}


def build_summary(observation: Observation, *, namespace: str) -> dict[str, Any]:
    """One training in a few words."""
    outcome, status = _judge(observation, namespace)
    metadata = (observation.stateful_set or {}).get("metadata", {})
    return {
        "name": observation.name,
        "namespace": namespace,
        **read_task(observation),
        "try_number": _annotations(observation).get(PREFIX + "try-number", ""),
        "phase": str(outcome["phase"]),
        "reason": str(outcome["reason"] or (status.trouble.reason if status.trouble else "")),
        "message": outcome["message"] or (status.trouble.message if status.trouble else ""),
        "learners": count_learners(observation.stateful_set),
        "ready": sum(row.ready for row in status.learners),
        "created": metadata.get("creationTimestamp"),
        "is_leaving": bool(metadata.get("deletionTimestamp")),
    }


def build_detail(
    observation: Observation, *, namespace: str, events: Iterable[Json]
) -> dict[str, Any]:
    """One training with all its learners, what happened to it, and what it asks for."""
    outcome, status = _judge(observation, namespace)
    states = {row.ordinal: _describe_state(row) for row in status.learners}
    rows = [
        {**row, "state": states.get(row["ordinal"]) or _read_state(row)}
        for row in outcome["learners"]
    ]
    return {
        **build_summary(observation, namespace=namespace),
        "learner_rows": rows,
        "timings": outcome["timings"],
        "restarts": outcome["restarts"],
        "result": outcome["result"],
        "resources": read_resources(observation.stateful_set),
        "events": build_events(observation, events),
    }


def _judge(observation: Observation, namespace: str) -> tuple[Outcome, Status]:
    """The outcome so far: the one that was noted, or what the objects tell."""
    status = compute_status(observation, learners=count_learners(observation.stateful_set))
    if noted := read_note(observation.stateful_set):
        return noted, Status(Phase(noted["phase"]), [])
    trouble = status.trouble if status.phase is Phase.FAILED else None
    outcome = build_outcome(observation, status, namespace=namespace, gpus=0, trouble=trouble)
    return outcome, status


def _describe_state(row: Learner) -> str:
    if row.succeeded:
        return "Succeeded"
    if row.record is not None or row.failed:
        return "Failed"
    if row.ready:
        return "Ready"
    return "Running" if row.running else "Pending"


def _read_state(row: Mapping[str, Any]) -> str:
    return "Succeeded" if row["reason"] == "Completed" else "Failed"


def build_events(observation: Observation, events: Iterable[Json]) -> list[dict[str, Any]]:
    """What happened to a training's StatefulSet and its pods, oldest first."""
    since = (observation.stateful_set or {}).get("metadata", {}).get("creationTimestamp", "")
    rows = []
    for event in events:
        about = event["involvedObject"].get("name", "")
        time = event.get("lastTimestamp") or event.get("eventTime") or ""
        ours = about == observation.name or is_learner_of(observation.name, about)
        if not ours or time < since:  # times of one form: their order is that of the texts
            continue
        learner = ordinal_of(about) if about != observation.name else None
        rows.append(
            {
                "time": time,
                "type": event.get("type", ""),
                "reason": event.get("reason", ""),
                "learner": learner,
                "message": event.get("message", ""),
                "count": event.get("count") or 1,
            }
        )
    return sorted(rows, key=lambda row: row["time"])[-_MOST_EVENTS:]


def read_resources(stateful_set: Json | None) -> dict[str, dict[str, str]]:
    """What a learner asks for and may use at most, by resource; Kubernetes quantities."""
    template = ((stateful_set or {}).get("spec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or []
    learner: Json = next((c for c in containers if c.get("name") == CONTAINER), {})
    resources = learner.get("resources") or {}
    return {key: dict(resources.get(key) or {}) for key in ("requests", "limits")}


def read_usage(pod_metrics: Iterable[Json]) -> dict[int, dict[str, str]]:
    """What each learner uses, by ordinal, from the metrics API; Kubernetes quantities."""
    used = {}
    for pod in pod_metrics:
        for container in pod.get("containers") or ():
            if container.get("name") == CONTAINER:
                used[ordinal_of(pod["metadata"]["name"])] = dict(container.get("usage") or {})
    return used


def _annotations(observation: Observation) -> Mapping[str, str]:
    metadata = (observation.stateful_set or {}).get("metadata", {})
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    return annotations
