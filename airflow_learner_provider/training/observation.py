"""What has been seen of one training, folded from the stream of changes.

The fold keeps what a snapshot forgets: a pod that was evicted and created anew looks young and
healthy, but the learner in it has lost its work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_learner_provider.training.completion import CONTAINER
from airflow_learner_provider.training.naming import is_learner_of, ordinal_of

Json = Mapping[str, Any]

_MOST_EVENTS = 50


@dataclass
class Observation:
    """The newest state of a training's objects, as Kubernetes JSON.

    :param name: name of the training, the StatefulSet and its Service.
    :param uid: of the StatefulSet; what belongs to another one of that name is passed over. None
        takes whichever is there.
    :param pods: newest pod of each learner, by ordinal.
    :param lost: last state of a learner's pod that ended or was replaced while the learner ran.
    :param events: newest events about the StatefulSet and its pods, by the event's name.
    """

    name: str
    uid: str | None = None
    stateful_set: Json | None = None
    was_seen: bool = False
    pods: dict[int, Json] = field(default_factory=dict)
    lost: dict[int, Json] = field(default_factory=dict)
    events: dict[str, Json] = field(default_factory=dict)

    def apply(self, kind: str, change: str, obj: Json) -> bool:
        """Fold one change in.

        :param kind: "StatefulSet", "Pod" or "Event".
        :param change: "ADDED", "MODIFIED" or "DELETED", as in the watch API.
        :return: False when the change is about something else.
        """
        name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
        if kind == "StatefulSet":
            ours = name == self.name and self._is_ours(uid)
            if ours:
                self._apply_stateful_set(change, obj)
        elif kind == "Pod":
            owners = obj["metadata"].get("ownerReferences") or [{"uid": self.uid}]
            ours = is_learner_of(self.name, name) and any(
                self._is_ours(owner["uid"]) for owner in owners
            )
            if ours:
                self._apply_pod(change, obj)
        else:
            about = obj.get("involvedObject", {}).get("name", "")
            ours = about == self.name or is_learner_of(self.name, about)
            if ours and change != "DELETED":  # an event that expired still happened
                self._apply_event(name, obj)
        return ours

    def _apply_stateful_set(self, change: str, stateful_set: Json) -> None:
        self.was_seen = True
        if change == "DELETED":
            self.stateful_set = None
        elif not self._is_outdated(stateful_set):
            self.stateful_set = stateful_set

    def _apply_event(self, name: str, event: Json) -> None:
        self.events.pop(name, None)
        self.events[name] = event
        while len(self.events) > _MOST_EVENTS:
            self.events.pop(next(iter(self.events)))

    def _is_ours(self, uid: str | None) -> bool:
        return self.uid is None or uid == self.uid

    def _is_outdated(self, stateful_set: Json) -> bool:
        """The watch runs after what a request has already returned."""
        known = (self.stateful_set or {}).get("metadata", {}).get("generation", 0)
        return bool(stateful_set["metadata"].get("generation", 0) < known)

    def forget_learners(self) -> None:
        """Begin anew with no learners: the group was ended in order to start again."""
        self.pods.clear()
        self.lost.clear()
        self.events.clear()

    def _apply_pod(self, change: str, pod: Json) -> None:
        ordinal = ordinal_of(pod["metadata"]["name"])
        known = self.pods.get(ordinal)
        if known is not None and known["metadata"]["uid"] != pod["metadata"]["uid"]:
            self._lose(ordinal, known)
        if change == "DELETED":
            self._lose(ordinal, pod)
            self.pods.pop(ordinal, None)
        else:
            self.pods[ordinal] = pod

    def _lose(self, ordinal: int, pod: Json) -> None:
        if has_started(pod):
            self.lost.setdefault(ordinal, pod)


def container_status(pod: Json, name: str = CONTAINER) -> Json | None:
    """Status of a container by its name.

    The order of the list means nothing: an admission webhook may have put its own first.
    """
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return next((status for status in statuses if status["name"] == name), None)


def has_started(pod: Json) -> bool:
    """Tell whether the learner in the pod has begun its work."""
    status = container_status(pod)
    if status is None:
        return False
    return bool(status.get("restartCount") or status.get("state", {}).keys() - {"waiting"})


def condition(obj: Json, kind: str) -> Json:
    """A condition of an object by its type; empty when it is not there."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})


def warnings_about(observation: Observation, obj: Json) -> list[Json]:
    """Warnings about an object, oldest first; not those about an earlier one of its name."""
    return [
        event
        for event in observation.events.values()
        if event["involvedObject"].get("uid") == obj["metadata"]["uid"]
        and event.get("type") == "Warning"
    ]
