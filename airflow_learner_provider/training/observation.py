"""What has been seen of one training, folded from the stream of changes.

The fold keeps what a snapshot forgets: a pod that was evicted and created anew looks young and
healthy, but the learner in it has lost its work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from airflow_learner_provider.training.completion import CONTAINER, ExitRecord, parse_exit_record
from airflow_learner_provider.training.naming import RESTARTS, is_learner_of, ordinal_of

Json = Mapping[str, Any]

_MOST_EVENTS = 50
# What is kept of events that are no warnings: they say why a pod is no longer there.
_TELLING = {"Preempted", "TaintManagerEviction"}
# How far the clocks of Airflow and of the cluster may be apart: a restart is noted by the one, and
# pods are created by the other.
_CLOCK_SECONDS = 10


@dataclass
class Observation:
    """The newest state of a training's objects, as Kubernetes JSON.

    :param name: name of the training, the StatefulSet and its Service.
    :param uid: of the StatefulSet; what belongs to another one of that name is passed over. None
        takes whichever is there, and begins anew when another one takes its place.
    :param pods: newest pod of each learner, by ordinal.
    :param lost: last state of a learner's pod that ended or was replaced while the learner ran.
    :param records: how the learner in a pod ended, by the pod's uid; a record once seen stays.
    :param deletions: Unix time at which a pod's deletion was asked for, by the pod's uid.
    :param starts: times at which a pod's learner was started, by the pod's name and uid.
    :param events: newest events about the StatefulSet and its pods, by the event's name.
    """

    name: str
    uid: str | None = None
    stateful_set: Json | None = None
    was_seen: bool = False
    pods: dict[int, Json] = field(default_factory=dict)
    lost: dict[int, Json] = field(default_factory=dict)
    records: dict[str, ExitRecord] = field(default_factory=dict)
    deletions: dict[str, float] = field(default_factory=dict)
    starts: dict[str, dict[str, str]] = field(default_factory=dict)
    events: dict[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._takes_any = self.uid is None

    def apply(self, kind: str, change: str, obj: Json) -> bool:
        """Fold one change in.

        :param kind: "StatefulSet", "Pod" or "Event".
        :param change: "ADDED", "MODIFIED" or "DELETED", as in the watch API.
        :return: False when the change is about something else.
        """
        name, uid = obj["metadata"]["name"], obj["metadata"]["uid"]
        if kind == "StatefulSet":
            self._make_room(change, name, uid)
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

    def forget_learners(self) -> None:
        """Begin anew with no learners: the group was ended in order to start again."""
        self.pods.clear()
        self.lost.clear()
        self.events.clear()

    def _make_room(self, change: str, name: str, uid: str) -> None:
        """Let another StatefulSet of the name take the place of the one that was seen."""
        if self._takes_any and name == self.name and change != "DELETED" and uid != self.uid:
            if self.uid is not None:
                self.forget_learners()
            self.uid, self.stateful_set = uid, None

    def _apply_stateful_set(self, change: str, stateful_set: Json) -> None:
        self.was_seen = True
        if change == "DELETED":
            self.stateful_set = None
        elif not self._is_outdated(stateful_set):
            self.stateful_set = stateful_set
            for ordinal, pod in list(self.lost.items()):
                if is_of_earlier_start(self, pod):
                    del self.lost[ordinal]

    def _is_ours(self, uid: str | None) -> bool:
        return self.uid is None or uid == self.uid

    def _is_outdated(self, stateful_set: Json) -> bool:
        """The watch runs after what a request has already returned."""
        known = (self.stateful_set or {}).get("metadata", {}).get("generation", 0)
        return bool(stateful_set["metadata"].get("generation", 0) < known)

    def _apply_event(self, name: str, event: Json) -> None:
        about = event["involvedObject"]
        if _is_start(event):
            time = event.get("lastTimestamp")
            if time is not None:
                self.starts.setdefault(about["name"], {})[about.get("uid", "")] = time
        elif is_telling(event):
            self.events.pop(name, None)
            self.events[name] = event
            while len(self.events) > _MOST_EVENTS:
                self.events.pop(next(iter(self.events)))

    def _apply_pod(self, change: str, pod: Json) -> None:
        ordinal = ordinal_of(pod["metadata"]["name"])
        self._note_end(pod)
        known = self.pods.get(ordinal)
        if known is not None and known["metadata"]["uid"] != pod["metadata"]["uid"]:
            self._lose(ordinal, known)
        if change == "DELETED":
            self._lose(ordinal, pod)
            self.pods.pop(ordinal, None)
        else:
            self.pods[ordinal] = pod

    def _note_end(self, pod: Json) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        if metadata.get("deletionTimestamp"):
            # It is when the grace period ends, so the deletion was asked for earlier. In its last
            # moments a pod gets a new one, with no grace: that says nothing about the beginning.
            grace = metadata.get("deletionGracePeriodSeconds")
            asked = unix_time(metadata["deletionTimestamp"]) - grace if grace else 0.0
            self.deletions.setdefault(uid, asked)
        status = container_status(pod)
        record = parse_exit_record(status) if status is not None else None
        if record is None:
            return
        known = self.records.setdefault(uid, replace(record, cut_short=self._cuts(pod, record)))
        if known.cut_short and record.held:
            self.records[uid] = replace(known, held=True, cut_short=False)

    def _cuts(self, pod: Json, record: ExitRecord) -> bool:
        """Tell whether the pod was being ended when its learner ended."""
        if record.held or not is_ending(pod):
            return False
        asked = asked_to_end(self, pod)
        if asked is None or record.finished is None:
            return True
        return unix_time(record.finished) >= asked

    def _lose(self, ordinal: int, pod: Json) -> None:
        if has_started(pod) and not is_of_earlier_start(self, pod):
            self.lost.setdefault(ordinal, pod)


# Phases of a pod that has ended.
ENDED = frozenset({"Failed", "Succeeded"})
_LEARNER_PATH = f"spec.containers{{{CONTAINER}}}"


def unix_time(time: str) -> float:
    """Unix time of an RFC 3339 text."""
    return datetime.fromisoformat(time).timestamp()


def container_status(pod: Json, name: str = CONTAINER) -> Json | None:
    """Status of a container by its name.

    The order of the list means nothing: an admission webhook may have put its own first.
    """
    lists = ("initContainerStatuses", "containerStatuses")
    statuses = [entry for key in lists for entry in pod.get("status", {}).get(key) or ()]
    return next((status for status in statuses if status["name"] == name), None)


def has_started(pod: Json, name: str = CONTAINER) -> bool:
    """Tell whether the learner in the pod, or another container, has begun its work."""
    status = container_status(pod, name)
    if status is None:
        return False
    return bool(status.get("restartCount") or status.get("state", {}).keys() - {"waiting"})


def condition(obj: Json, kind: str) -> Json:
    """A condition of an object by its type; empty when it is not there."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})


def is_telling(event: Json) -> bool:
    """Tell whether an event says something about how a training fares; most do not."""
    return event.get("type") == "Warning" or event.get("reason") in _TELLING or _is_start(event)


def _is_start(event: Json) -> bool:
    """Tell whether a learner's command was started."""
    path = event["involvedObject"].get("fieldPath")
    return event.get("reason") == "Started" and path == _LEARNER_PATH


def is_ending(pod: Json) -> bool:
    """Tell whether a pod is being ended, or has ended: none of ours does by itself."""
    return (
        bool(pod["metadata"].get("deletionTimestamp"))
        or pod.get("status", {}).get("phase") in ENDED
        or condition(pod, "DisruptionTarget").get("status") == "True"
    )


def asked_to_end(observation: Observation, pod: Json) -> float | None:
    """Unix time at which somebody asked for a pod's end, as far as that can be known."""
    times = [observation.deletions.get(pod["metadata"]["uid"])]
    disruption = condition(pod, "DisruptionTarget")
    if disruption.get("status") == "True" and "lastTransitionTime" in disruption:
        times.append(unix_time(disruption["lastTransitionTime"]))
    return min((time for time in times if time is not None), default=None)


def find_beginning(observation: Observation) -> float:
    """Unix time at which the learners of a training were started, all of them, the last time."""
    if observation.stateful_set is None:
        return 0
    metadata = observation.stateful_set["metadata"]
    noted = json.loads((metadata.get("annotations") or {}).get(RESTARTS) or "[]")
    created = unix_time(metadata["creationTimestamp"])
    return max([created, *(float(restart["at"]) for restart in noted)])


def is_of_earlier_start(observation: Observation, pod: Json) -> bool:
    """Tell whether a pod is left from before all learners were started again."""
    created = unix_time(pod["metadata"]["creationTimestamp"])
    return created < find_beginning(observation) - _CLOCK_SECONDS


def find_earlier_pod(observation: Observation, pod: Json) -> str | None:
    """The uid of an earlier pod of the same learner whose command had begun, if there was one.

    It shows what nobody watched. An earlier training of the same name was gone before this one's
    StatefulSet was created.
    """
    begun = find_beginning(observation)
    until = unix_time(pod["metadata"]["creationTimestamp"])
    for uid, time in observation.starts.get(pod["metadata"]["name"], {}).items():
        if uid != pod["metadata"]["uid"] and begun < unix_time(time) <= until:
            return uid
    return None


def warnings_about(observation: Observation, obj: Json) -> list[Json]:
    """Warnings about an object, oldest first; not those about an earlier one of its name."""
    warnings = [
        event
        for event in observation.events.values()
        if event["involvedObject"].get("uid") == obj["metadata"]["uid"]
        and event.get("type") == "Warning"
    ]
    return sorted(warnings, key=lambda event: event.get("lastTimestamp") or "")
