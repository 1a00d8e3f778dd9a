"""What is wrong with a learner, from what its pod, its containers and their events say."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from airflow_learner_provider.training.completion import (
    CONTAINER,
    HOLDER,
    START_ERRORS,
    ExitRecord,
)
from airflow_learner_provider.training.observation import (
    Json,
    Observation,
    condition,
    container_status,
    find_earlier_pod,
    warnings_about,
)


class Reason(StrEnum):
    """Why a training failed or does not start: a stable enumeration."""

    EXIT_CODE = "ExitCode"
    SIGNAL = "Signal"
    OOM_KILLED = "OOMKilled"
    IMAGE_NAME = "InvalidImageName"
    IMAGE_NOT_FOUND = "ImageNotFound"
    IMAGE_DENIED = "ImageDenied"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    CONTAINER_CONFIG = "ContainerConfigError"
    CRASH_LOOP = "CrashLoop"
    INIT_CONTAINER = "InitContainerFailed"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    NODE_LOST = "NodeLost"
    NODE_NOT_READY = "NodeNotReady"
    UNSCHEDULABLE = "Unschedulable"
    QUOTA = "QuotaExceeded"
    ADMISSION = "AdmissionDenied"
    SERVICE_ACCOUNT = "ServiceAccountMissing"
    VOLUME_NOT_FOUND = "VolumeNotFound"
    VOLUME = "VolumeUnavailable"
    NOT_READY = "NotReady"
    DELETED = "Deleted"
    SCALED = "Scaled"
    ARTIFACTS = "ArtifactsMissing"
    TIMEOUT = "ExecutionTimeout"
    KILLED = "Killed"


# Seconds for which a trouble may last before it is final: errors of a registry or a kubelet can
# pass. Reasons that are missing here are final at once; None waits for the start-up deadline.
GRACE: dict[Reason, float | None] = {
    Reason.IMAGE_NOT_FOUND: 15,
    Reason.IMAGE_DENIED: 15,
    Reason.IMAGE_UNAVAILABLE: 60,
    Reason.CONTAINER_CONFIG: 15,
    Reason.ADMISSION: 30,
    Reason.SERVICE_ACCOUNT: 30,
    Reason.VOLUME_NOT_FOUND: 30,
    Reason.NODE_NOT_READY: 60,
    Reason.CRASH_LOOP: None,
    Reason.UNSCHEDULABLE: None,
    Reason.QUOTA: None,
    Reason.VOLUME: None,
    Reason.NOT_READY: None,
}

_PULL_ERRORS = {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError"}
_IMAGE_ERRORS = {
    "InvalidImageName": Reason.IMAGE_NAME,
    "ErrImageNeverPull": Reason.IMAGE_NOT_FOUND,
}
_CONFIG_ERRORS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
# Reasons of a container of which kubelet or the runtime lost sight: its node went down.
_LOST_CONTAINER = {"ContainerStatusUnknown", "Unknown"}
# Reasons of the condition DisruptionTarget.
# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTIONS = {
    "PreemptionByScheduler": Reason.PREEMPTED,
    "DeletionByTaintManager": Reason.EVICTED,
    "DeletionByPodGC": Reason.NODE_LOST,
    "EvictionByEvictionAPI": Reason.EVICTED,
    "TerminationByKubelet": Reason.EVICTED,
}
# Reasons that kubelet or the node controller write into a pod's status when they end it.
_ENDINGS = {
    "Evicted": Reason.EVICTED,
    "Preempting": Reason.PREEMPTED,
    "Terminated": Reason.NODE_LOST,
    "NodeShutdown": Reason.NODE_LOST,
    "NodeLost": Reason.NODE_LOST,
}
# Events about a pod that is no longer there, the most telling first.
_FAREWELLS = {
    "NodeNotReady": Reason.NODE_LOST,
    "Preempted": Reason.PREEMPTED,
    "Evicted": Reason.EVICTED,
    "TaintManagerEviction": Reason.EVICTED,
}
_WORDS = {
    Reason.PREEMPTED: "was preempted",
    Reason.EVICTED: "was evicted",
    Reason.NODE_LOST: "was lost",
    Reason.DELETED: "was deleted while it ran",
}

# Of a path of the node in which a subPath is to be mounted. A volume that is mounted whole is
# looked for by the runtime, or earlier if its hostPath has a type.
_NO_FOLDER = re.compile(r"l?stat /.*: no such file or directory")

# Kubelet's word before it ends a container that does not answer.
_FAILED_PROBE = re.compile("(Liveness|Startup) probe failed")

_SIGNALS = {number.value: number.name for number in signal.Signals}


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a learner or with the whole training (ordinal None)."""

    reason: Reason
    message: str
    ordinal: int | None = None


def name_signal(record: ExitRecord) -> str | None:
    """The signal that ended a command, as shells tell it in the exit code."""
    return _SIGNALS.get(record.exit_code - 128)


def judge_record(record: ExitRecord, ordinal: int, warnings: Sequence[Json]) -> Trouble | None:
    """Say how a command failed; None when it ended well.

    :param warnings: about the pod.
    """
    said = f": {record.message.strip()}" if record.message.strip() else ""
    code = record.exit_code
    if record.reason == "OOMKilled":
        # Also with exit code 0: the kernel may kill a child while its parent goes on.
        return Trouble(Reason.OOM_KILLED, f"ran out of memory (exit code {code}){said}", ordinal)
    if record.reason in START_ERRORS:
        return Trouble(
            Reason.CONTAINER_CONFIG, f"could not start (exit code {code}){said}", ordinal
        )
    if record.reason in _LOST_CONTAINER:
        return Trouble(Reason.NODE_LOST, f"went down with its node (exit code {code})", ordinal)
    name = name_signal(record)
    if name is not None:
        probes = [w["message"].strip() for w in warnings if _FAILED_PROBE.match(w["message"])]
        probe = f"; {probes[-1]}" if probes else ""
        said = f"was ended by {name} (exit code {code}{probe}){said}"
        return Trouble(Reason.SIGNAL, said, ordinal)
    if code != 0:
        return Trouble(Reason.EXIT_CODE, f"ended with exit code {code}{said}", ordinal)
    return None


def explain_ended_pod(pod: Json, ordinal: int) -> Trouble:
    """Say why a pod ended, or is being ended, while its learner ran."""
    status = pod.get("status", {})
    disruption = condition(pod, "DisruptionTarget")
    said = status.get("message") or disruption.get("message")
    reason = _ENDINGS.get(status.get("reason", "")) or _DISRUPTIONS.get(
        disruption.get("reason", "")
    )
    if reason is Reason.EVICTED and _is_node_silent(pod):
        # A node that does not answer gets a taint, and the taint's manager deletes its pods.
        reason = Reason.NODE_LOST
    return _explain_end(pod, reason or Reason.DELETED, said, ordinal)


def _explain_end(pod: Json, reason: Reason, said: str | None, ordinal: int) -> Trouble:
    node = pod.get("spec", {}).get("nodeName")
    where = f" on node {node}" if node else ""
    words = f"pod {pod['metadata']['name']}{where} {_WORDS[reason]}"
    return Trouble(reason, f"{words}: {said}" if said else words, ordinal)


def _is_node_silent(pod: Json) -> bool:
    """Tell whether a pod's node does not answer.

    The node controller then takes back the pod's readiness and leaves all else as kubelet last
    wrote it; kubelet would have given a reason.
    """
    ready = condition(pod, "Ready")
    return (
        ready.get("status") == "False"
        and not ready.get("reason")
        and condition(pod, "ContainersReady").get("status") == "True"
    ) or pod.get("status", {}).get("phase") == "Unknown"


def explain_earlier_pod(observation: Observation, pod: Json, ordinal: int) -> Trouble | None:
    """Say what became of an earlier pod of this learner that nobody watched, if there was one."""
    uid = find_earlier_pod(observation, pod)
    if uid is None:
        return None
    name = pod["metadata"]["name"]
    about = {
        event.get("reason"): event.get("message")
        for event in observation.events.values()
        if event["involvedObject"].get("name") == name
        and event["involvedObject"].get("uid") in {uid, "", None}
    }
    for farewell, reason in _FAREWELLS.items():
        if farewell in about:
            said = f"an earlier pod {name} {_WORDS[reason]}: {about[farewell]}"
            return Trouble(reason, said, ordinal)
    return Trouble(Reason.DELETED, f"an earlier pod {name} {_WORDS[Reason.DELETED]}", ordinal)


def explain_missing_pod(observation: Observation, ordinal: int) -> Trouble | None:
    """Say why a learner has no pod, if the cluster says anything."""
    # Quota and admission speak only through events of the StatefulSet (kubernetes#21912).
    pod = f"{observation.name}-{ordinal}"
    if observation.stateful_set is None:
        return None
    words = [
        event.get("message", "")
        for event in warnings_about(observation, observation.stateful_set)
        if event.get("reason") == "FailedCreate" and f"Pod {pod} " in event.get("message", "")
    ]
    if not words:
        return None
    said = words[-1].partition("error: ")[2] or words[-1]
    if "exceeded quota" in said:
        return Trouble(Reason.QUOTA, said, ordinal)
    if "serviceaccount" in said and "not found" in said:
        return Trouble(Reason.SERVICE_ACCOUNT, said, ordinal)
    if f'Pod "{pod}" is invalid' in said:
        return Trouble(Reason.CONTAINER_CONFIG, said, ordinal)
    return Trouble(Reason.ADMISSION, said, ordinal)


def explain_waiting(
    observation: Observation, pod: Json, status: Json | None, ordinal: int
) -> Trouble | None:
    """Say what keeps a learner from being ready, most telling first; None when it is."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return _explain_unscheduled(scheduled.get("message", ""), ordinal)
    if _is_node_silent(pod):
        node = pod.get("spec", {}).get("nodeName")
        return Trouble(Reason.NODE_NOT_READY, f"node {node} does not answer", ordinal)
    has_begun = status is not None and "waiting" not in status.get("state", {})
    warnings = warnings_about(observation, pod)
    trouble = None if has_begun else _explain_init_containers(pod, warnings, ordinal)
    for container in (status, container_status(pod, HOLDER)):
        if trouble is None and container is not None:
            trouble = _explain_container(container, warnings, ordinal)
    if trouble is not None:
        return trouble
    if condition(pod, "Ready").get("status") == "True":
        return None
    return _explain_side_containers(pod, warnings, ordinal) or _explain_by_events(
        warnings, pod, ordinal, has_begun=has_begun
    )


def _explain_unscheduled(said: str, ordinal: int) -> Trouble:
    if "persistentvolumeclaim" in said.lower():
        reason = Reason.VOLUME_NOT_FOUND if "not found" in said else Reason.VOLUME
        return Trouble(reason, said, ordinal)
    return Trouble(Reason.UNSCHEDULABLE, said, ordinal)


def _explain_init_containers(pod: Json, warnings: Sequence[Json], ordinal: int) -> Trouble | None:
    """Say what is wrong with an init container; once the learner runs they are only sidecars."""
    for init in pod.get("status", {}).get("initContainerStatuses") or ():
        where = f"init container {init['name']}"
        trouble = _explain_container(init, warnings, ordinal)
        if trouble is not None:
            return replace(trouble, message=f"{where}: {trouble.message}")
        crash = _explain_crash(init)
        if crash is not None:
            return Trouble(Reason.INIT_CONTAINER, f"{where}: {crash}", ordinal)
    return None


def _explain_side_containers(pod: Json, warnings: Sequence[Json], ordinal: int) -> Trouble | None:
    """Say which other container keeps a pod from being ready; none of them ends a training."""
    status = pod.get("status", {})
    inits = status.get("initContainerStatuses") or ()
    for container in (*(status.get("containerStatuses") or ()), *inits):
        if container["name"] in {CONTAINER, HOLDER}:
            continue
        where = f"container {container['name']}"
        trouble = _explain_container(container, warnings, ordinal)
        if trouble is not None:
            return Trouble(Reason.NOT_READY, f"{where}: {trouble.message}", ordinal)
        crash = _explain_crash(container)
        if crash is not None:
            return Trouble(Reason.CRASH_LOOP, f"{where}: {crash}", ordinal)
    return None


def _explain_by_events(
    warnings: Sequence[Json], pod: Json, ordinal: int, *, has_begun: bool
) -> Trouble:
    for event in reversed(warnings):
        if event.get("reason") in {"FailedMount", "FailedAttachVolume"} and not has_begun:
            said = event.get("message", "")
            reason = Reason.VOLUME_NOT_FOUND if _NOT_THERE.search(said) else Reason.VOLUME
            return Trouble(reason, said, ordinal)
    inits = pod.get("status", {}).get("initContainerStatuses") or ()
    busy = [init["name"] for init in inits if "running" in init.get("state", {})]
    said = "the pod is not ready yet"
    if warnings:
        said = warnings[-1].get("message", "")
    elif busy and not has_begun:
        said = f"init container {busy[-1]} is still running"
    return Trouble(Reason.NOT_READY, said, ordinal)


# Kubelet about a volume: `secret "absent" not found`, `hostPath type check failed`, `references
# non-existent secret key`. A CSI driver that is not found may come yet.
_NOT_THERE = re.compile('(secret|configmap) ".*" not found|check failed|non-existent')


def _explain_container(status: Json, warnings: Sequence[Json], ordinal: int) -> Trouble | None:
    waiting = status.get("state", {}).get("waiting") or {}
    reason, said = waiting.get("reason", ""), waiting.get("message", "")
    image = status.get("image", "")
    if reason in _IMAGE_ERRORS:
        return Trouble(_IMAGE_ERRORS[reason], f"image {image}: {said or reason}", ordinal)
    if reason in _PULL_ERRORS:
        if reason == "ImagePullBackOff":  # the cause of it may be told by the event only
            told = f'Failed to pull image "{image}"'
            causes = [e["message"] for e in warnings if e.get("message", "").startswith(told)]
            said = causes[-1] if causes else said
        kind = _classify_pull_error(said, image)
        return Trouble(kind, f"image {image} cannot be pulled: {said}", ordinal)
    if reason == "CreateContainerConfigError" and _NO_FOLDER.match(said):
        return Trouble(Reason.VOLUME_NOT_FOUND, f"a volume's folder is missing: {said}", ordinal)
    if reason in _CONFIG_ERRORS:
        return Trouble(Reason.CONTAINER_CONFIG, said or reason, ordinal)
    return None


def _explain_crash(status: Json) -> str | None:
    """Say how a container ended that is started again and again: after its second end."""
    state = status.get("state", {})
    end = state.get("terminated") or {}
    if (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff":
        end = status.get("lastState", {}).get("terminated") or {}
    elif not status.get("restartCount"):
        return None
    if not end or (end["exitCode"] == 0 and end.get("reason") != "OOMKilled"):
        return None
    said = end.get("message", "").strip() or end.get("reason", "")
    return f"exit code {end['exitCode']}: {said}"


def _classify_pull_error(said: str, image: str) -> Reason:
    lower = re.sub('"[^"]*"', "", said).replace(image, "").lower()
    if "invalid reference format" in lower:
        return Reason.IMAGE_NAME
    if any(word in lower for word in _DENIALS):
        return Reason.IMAGE_DENIED
    if "not found" in lower or "manifest unknown" in lower:
        return Reason.IMAGE_NOT_FOUND
    return Reason.IMAGE_UNAVAILABLE


_DENIALS = ("denied", "unauthorized", "forbidden", "authorization", "authentication", "credentials")
