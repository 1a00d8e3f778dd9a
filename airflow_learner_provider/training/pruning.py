"""What is kept of an object's JSON: thousands of trainings are followed in one process."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_learner_provider.training.observation import is_telling

Json = Mapping[str, Any]

# Keys come from here, so that all objects share them; of what is read nothing is left out.
_METADATA = (
    *("name", "namespace", "uid", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_POD_STATUS = ("phase", "reason", "message")
_SET_STATUS = ("observedGeneration", "replicas", "updatedReplicas", "availableReplicas")
_CONTAINER = ("name", "image", "imageID", "ready", "restartCount", "state", "lastState")
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
_EVENT = ("type", "reason", "message", "lastTimestamp", "count")
_INVOLVED = ("kind", "name", "uid", "fieldPath")
# Written by kubectl for itself: the whole manifest once more.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def prune(kind: str, obj: Json) -> Json | None:
    """Return what is looked at of an object; None when nothing is.

    :param kind: "StatefulSet", "Pod" or "Event".
    """
    if kind == "Event":
        return _prune_event(obj) if is_telling(obj) else None
    metadata = _pick(obj["metadata"], _METADATA)
    status = obj.get("status", {})
    if kind == "Pod":
        if owners := obj["metadata"].get("ownerReferences"):
            metadata["ownerReferences"] = [{"uid": owner["uid"]} for owner in owners]
        spec = _pick(obj["spec"], ("nodeName",))
        return {"metadata": metadata, "spec": spec, "status": _prune_pod_status(status)}
    annotations = dict(obj["metadata"].get("annotations") or {})
    annotations.pop(_LAST_APPLIED, None)
    metadata["annotations"] = annotations
    spec = {"replicas": obj["spec"].get("replicas", 1)}
    return {"metadata": metadata, "spec": spec, "status": _pick(status, _SET_STATUS)}


def _prune_event(event: Json) -> Json:
    return {
        "metadata": _pick(event["metadata"], ("name", "uid")),
        "involvedObject": _pick(event["involvedObject"], _INVOLVED),
        **_pick(event, _EVENT),
    }


def _prune_pod_status(status: Json) -> dict[str, Any]:
    kept = _pick(status, _POD_STATUS)
    if conditions := status.get("conditions"):
        kept["conditions"] = [_pick(entry, _CONDITION) for entry in conditions]
    for key in ("initContainerStatuses", "containerStatuses"):
        if containers := status.get(key):
            kept[key] = [_pick(entry, _CONTAINER) for entry in containers]
    return kept


def _pick(obj: Json, keys: Iterable[str]) -> dict[str, Any]:
    return {key: _share(obj[key]) for key in keys if key in obj}


def _share(value: Any) -> Any:
    """Short texts, such as "True" and "Ready", come again and again."""
    return sys.intern(value) if type(value) is str and len(value) < 40 else value
