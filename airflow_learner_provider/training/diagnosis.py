"""What is wrong with a learner, from what its pod, its containers and their events say."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum

from airflow_learner_provider.training.completion import ExitRecord
from airflow_learner_provider.training.observation import (
    Json,
    Observation,
    condition,
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
    UNSCHEDULABLE = "Unschedulable"
    QUOTA = "QuotaExceeded"
    ADMISSION = "AdmissionDenied"
    SERVICE_ACCOUNT = "ServiceAccountMissing"
    VOLUME = "VolumeUnavailable"
    NOT_READY = "NotReady"
    DELETED = "Deleted"
    SCALED = "Scaled"
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
    Reason.NODE_LOST: 60,
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
_START_ERRORS = {"StartError", "ContainerCannotRun", "ContainerStatusUnknown"}
# Reasons of the condition DisruptionTarget.
# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTIONS = {
    "PreemptionByScheduler": Reason.PREEMPTED,
    "DeletionByTaintManager": Reason.NODE_LOST,
    "DeletionByPodGC": Reason.NODE_LOST,
    "EvictionByEvictionAPI": Reason.EVICTED,
    "TerminationByKubelet": Reason.EVICTED,
}


_SIGNALS = {number.value: number.name for number in signal.Signals}


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a learner or with the whole training (ordinal None)."""

    reason: Reason
    message: str
    ordinal: int | None = None


def judge_record(record: ExitRecord, ordinal: int) -> Trouble | None:
    """Say how a command failed; None when it ended well."""
    said = f": {record.message.strip()}" if record.message.strip() else ""
    code = record.exit_code
    if record.reason == "OOMKilled":
        # Also with exit code 0: the kernel may kill a child while its parent goes on.
        return Trouble(Reason.OOM_KILLED, f"ran out of memory (exit code {code}){said}", ordinal)
    if record.reason in _START_ERRORS:
        return Trouble(
            Reason.CONTAINER_CONFIG, f"could not start (exit code {code}){said}", ordinal
        )
    if code - 128 in _SIGNALS:
        said = f"was ended by {_SIGNALS[code - 128]} (exit code {code}){said}"
        return Trouble(Reason.SIGNAL, said, ordinal)
    if code != 0:
        return Trouble(Reason.EXIT_CODE, f"ended with exit code {code}{said}", ordinal)
    return None


def explain_ended_pod(pod: Json, ordinal: int) -> Trouble:
    """Say why a pod ended, or is being ended, while its learner ran."""
    name = pod["metadata"]["name"]
    disruption = condition(pod, "DisruptionTarget")
    said = disruption.get("message") or pod.get("status", {}).get("message") or ""
    said = f": {said}" if said else ""
    reason = _DISRUPTIONS.get(disruption.get("reason", ""))
    if pod.get("status", {}).get("reason") == "Evicted":
        reason = Reason.EVICTED
    if reason is None:
        return Trouble(Reason.DELETED, f"pod {name} was deleted while it ran{said}", ordinal)
    words = {Reason.PREEMPTED: "preempted", Reason.EVICTED: "evicted", Reason.NODE_LOST: "lost"}
    node = pod.get("spec", {}).get("nodeName")
    return Trouble(reason, f"pod {name} on node {node} was {words[reason]}{said}", ordinal)


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
    if "exceeded quota" in said or "failed quota" in said:
        return Trouble(Reason.QUOTA, said, ordinal)
    if "serviceaccount" in said and "not found" in said:
        return Trouble(Reason.SERVICE_ACCOUNT, said, ordinal)
    return Trouble(Reason.ADMISSION, said, ordinal)


def explain_waiting(
    observation: Observation, pod: Json, status: Json | None, ordinal: int
) -> Trouble | None:
    """Say what keeps a learner from being ready, most telling first; None when it is."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return Trouble(Reason.UNSCHEDULABLE, scheduled.get("message", ""), ordinal)
    trouble = _explain_init_containers(pod, ordinal)
    if trouble is None and status is not None:
        trouble = _explain_container(status, ordinal)
    if trouble is not None:
        return trouble
    if condition(pod, "Ready").get("status") == "True":
        return None
    has_begun = status is not None and "waiting" not in status.get("state", {})
    return _explain_by_events(warnings_about(observation, pod), ordinal, has_begun=has_begun)


def _explain_init_containers(pod: Json, ordinal: int) -> Trouble | None:
    for init in pod.get("status", {}).get("initContainerStatuses") or ():
        trouble = _explain_container(init, ordinal)
        if trouble is not None:
            crashed = trouble.reason is Reason.CRASH_LOOP
            reason = Reason.INIT_CONTAINER if crashed else trouble.reason
            return Trouble(reason, f"init container {init['name']}: {trouble.message}", ordinal)
    return None


def _explain_by_events(warnings: list[Json], ordinal: int, *, has_begun: bool) -> Trouble:
    for event in reversed(warnings):
        if event.get("reason") == "NodeNotReady":
            return Trouble(Reason.NODE_LOST, event.get("message", ""), ordinal)
        if event.get("reason") in {"FailedMount", "FailedAttachVolume"} and not has_begun:
            return Trouble(Reason.VOLUME, event.get("message", ""), ordinal)
    said = warnings[-1].get("message", "") if warnings else "the pod is not ready yet"
    return Trouble(Reason.NOT_READY, said, ordinal)


def _explain_container(status: Json, ordinal: int) -> Trouble | None:
    waiting = status.get("state", {}).get("waiting") or {}
    reason, said = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE_ERRORS:
        return Trouble(_IMAGE_ERRORS[reason], f"image {status['image']}: {said or reason}", ordinal)
    if reason in _PULL_ERRORS:
        kind = _classify_pull_error(said)
        return Trouble(kind, f"image {status['image']} cannot be pulled: {said}", ordinal)
    if reason in _CONFIG_ERRORS:
        return Trouble(Reason.CONTAINER_CONFIG, said or reason, ordinal)
    if reason == "CrashLoopBackOff":
        last = status.get("lastState", {}).get("terminated") or {}
        said = f"exit code {last.get('exitCode')}: {last.get('message') or last.get('reason')}"
        return Trouble(Reason.CRASH_LOOP, said, ordinal)
    return None


def _classify_pull_error(said: str) -> Reason:
    lower = said.lower()
    if any(word in lower for word in ("denied", "unauthorized", "forbidden", "authorization")):
        return Reason.IMAGE_DENIED
    if "not found" in lower or "manifest unknown" in lower:
        return Reason.IMAGE_NOT_FOUND
    return Reason.IMAGE_UNAVAILABLE
