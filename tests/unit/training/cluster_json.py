"""Short words for what a cluster says of a training named "digits", as Kubernetes JSON.

Times are seconds after the StatefulSet was created.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_learner_provider.training.naming import REPORTED, RESTARTS
from airflow_learner_provider.training.observation import Observation

Json = dict[str, Any]
Change = tuple[str, str, Json]

NAME = "digits"
SET = "uid-of-the-set"
BEGINNING = datetime(2026, 1, 1, 12, tzinfo=UTC)


def time(seconds: float) -> str:
    """An RFC 3339 text, in whole seconds as Kubernetes keeps them."""
    return (BEGINNING + timedelta(seconds=int(seconds))).isoformat().replace("+00:00", "Z")


def stateful_set(
    replicas: int = 1,
    *,
    up: int | None = None,
    status: Json | None = None,
    generation: int = 2,
    uid: str = SET,
    deleted: bool = False,
    restarts: str = "[]",
    reported: bool = False,
) -> Change:
    """The StatefulSet.

    :param up: how many learners are ready and available; all by default.
    :param status: in place of the status that follows from it.
    """
    up = replicas if up is None else up
    counters = {"observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas}
    counters |= {"readyReplicas": up, "availableReplicas": up}
    metadata: Json = {"name": NAME, "uid": uid, "generation": generation}
    metadata |= {"creationTimestamp": time(0), "annotations": {RESTARTS: restarts}}
    if deleted:
        metadata["deletionTimestamp"] = time(30)
    if reported:
        metadata["annotations"][REPORTED] = "true"
    spec = {"replicas": replicas}
    status = counters if status is None else status
    return "StatefulSet", "MODIFIED", {"metadata": metadata, "spec": spec, "status": status}


def running(*, restarts: int = 0, last: Json | None = None, name: str = "learner") -> Json:
    """A container that runs; a learner's holder when `last` is how the learner ended."""
    state = {"running": {"startedAt": time(3)}}
    return _container(name, restarts, state, last)


def ended(
    code: int,
    reason: str = "",
    *,
    at: float = 10,
    message: str = "",
    restarts: int = 0,
    last: Json | None = None,
    name: str = "learner",
) -> Json:
    """A container that has ended and was not started again."""
    state = {"terminated": end(code, reason, at=at, message=message)}
    return _container(name, restarts, state, last)


def waiting(
    reason: str = "ContainerCreating",
    message: str = "",
    *,
    restarts: int = 0,
    last: Json | None = None,
    name: str = "learner",
) -> Json:
    """A container that waits for its start, or for its next one."""
    return _container(name, restarts, {"waiting": {"reason": reason, "message": message}}, last)


def end(code: int, reason: str = "", *, at: float = 10, message: str = "") -> Json:
    """How a container ended."""
    reason = reason or ("Error" if code else "Completed")
    times = {"startedAt": time(3), "finishedAt": time(at)}
    return {"exitCode": code, "reason": reason, "message": message, **times}


def _container(name: str, restarts: int, state: Json, last: Json | None) -> Json:
    return {
        "name": name,
        "image": "registry.example.com/ml/digits:1",
        "restartCount": restarts,
        "ready": "running" in state,
        "state": state,
        "lastState": {} if last is None else {"terminated": last},
    }


def pod(
    ordinal: int,
    *containers: Json,
    init: Json | None = None,
    uid: str | None = None,
    owner: str = SET,
    created: float = 1,
    deleted: float | None = None,
    grace: int = 30,
    phase: str = "Running",
    reason: str | None = None,
    message: str | None = None,
    conditions: tuple[Json, ...] = (),
) -> Change:
    """A learner's pod.

    :param deleted: when its deletion was asked for.
    :param grace: seconds that it has to end.
    :param conditions: beside, or in place of, those that follow from the containers.
    """
    metadata: Json = {"name": f"{NAME}-{ordinal}", "uid": uid or f"uid-{ordinal}"}
    metadata |= {"creationTimestamp": time(created), "ownerReferences": [{"uid": owner}]}
    if deleted is not None:
        metadata["deletionTimestamp"] = time(deleted + grace)
        metadata["deletionGracePeriodSeconds"] = grace
    ready = bool(containers) and all(container["ready"] for container in containers)
    usual: list[Json] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": time(1)},
        {"type": "ContainersReady", "status": str(ready)},
        {"type": "Ready", "status": str(ready), "reason": None if ready else "ContainersNotReady"},
    ]
    given = {condition["type"] for condition in conditions}
    status: Json = {"phase": phase, "containerStatuses": list(containers)}
    status["conditions"] = [c for c in usual if c["type"] not in given] + list(conditions)
    status |= {"reason": reason} if reason else {}
    status |= {"message": message} if message else {}
    status |= {"initContainerStatuses": [init]} if init is not None else {}
    spec = {"nodeName": "node-a"}
    return "Pod", "MODIFIED", {"metadata": metadata, "spec": spec, "status": status}


def removed(change: Change) -> Change:
    """The same object, deleted."""
    kind, _, obj = change
    return kind, "DELETED", obj


def disrupted(reason: str, *, at: float = 8, message: str = "") -> Json:
    """The condition of a pod that is to go."""
    condition = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": time(at)}
    return condition | {"reason": reason, "message": message}


def unscheduled(message: str, reason: str = "Unschedulable") -> Json:
    """The condition of a pod that has no node."""
    return {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}


# The node controller takes a pod's readiness back, and says nothing.
SILENT = (
    {"type": "Ready", "status": "False"},
    {"type": "ContainersReady", "status": "True"},
)


def event(
    reason: str,
    message: str = "",
    *,
    about: str = SET,
    kind: str = "Warning",
    at: float = 5,
    path: str | None = None,
) -> Change:
    """An event.

    :param about: uid of a pod, such as "uid-0", or of the StatefulSet.
    :param path: of the container in the pod that it is about.
    """
    name = NAME if about == SET else f"{NAME}-0"
    involved = {"name": name, "uid": about, "fieldPath": path}
    metadata = {"name": f"{name}.{reason}.{message[:20]}.{about}", "uid": f"{reason}{at}"}
    return (
        "Event",
        "ADDED",
        {
            "metadata": metadata,
            "involvedObject": involved,
            "type": kind,
            "reason": reason,
            "message": message,
            "lastTimestamp": time(at),
        },
    )


def not_created(ordinal: int, error: str, **kwargs: Any) -> Change:
    """The event of the StatefulSet for a pod that the API server refuses."""
    pod = f"{NAME}-{ordinal}"
    said = f"create Pod {pod} in StatefulSet {NAME} failed error: {error}"
    return event("FailedCreate", said, **kwargs)


def observe(*changes: Change, uid: str | None = SET) -> Observation:
    """Fold changes into an observation."""
    observation = Observation(NAME, uid)
    for change in changes:
        observation.apply(*change)
    return observation
