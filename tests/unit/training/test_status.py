"""Situations, each by name, and the verdict on it."""

# ruff: noqa: E501 - a situation is one line

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from airflow_learner_provider.training.completion import ExitRecord
from airflow_learner_provider.training.diagnosis import GRACE, Reason
from airflow_learner_provider.training.status import Learner, Phase, compute_status
from tests.unit.training.cluster_json import (
    SILENT,
    Change,
    disrupted,
    end,
    ended,
    event,
    not_created,
    observe,
    pod,
    removed,
    running,
    stateful_set,
    unscheduled,
    waiting,
)


@dataclass(frozen=True)
class Verdict:
    """What is expected: learner is the ordinal of the root cause, fragment a part of its message."""

    phase: str
    reason: str | None = None
    fragment: str = ""
    learner: int | None = None
    ready: bool = False


def fails(reason: Reason, fragment: str, learner: int | None = 0) -> Verdict:
    """The training has failed."""
    return Verdict("Failed", reason, fragment, learner)


def waits(reason: Reason, fragment: str, learner: int | None = 0) -> Verdict:
    """A learner is not up, and that may pass."""
    return Verdict("Pending", reason, fragment, learner)


PENDING = Verdict("Pending")
RUNNING = Verdict("Running", ready=True)
SUCCEEDED = Verdict("Succeeded", ready=True)
RUNS_ON = Verdict("Pending")  # not ready just now; whether it has been is not seen in a snapshot

BACK_OFF = "back-off 10s restarting failed container"
PULL = 'rpc error: code = Unknown desc = failed to pull image "registry.example.com/ml/digits:1": '
LEARNER = "spec.containers{learner}"


def pulls(message: str, reason: str = "ErrImagePull") -> Change:
    """Learner 0 cannot pull its image."""
    return pod(0, waiting(reason, message))


def has_events(*events: Change, container: Any = None) -> list[Change]:
    """One learner that is not ready, and events about its pod."""
    return [stateful_set(up=0), pod(0, container or waiting()), *events]


def in_pod(reason: str, message: str = "", **kwargs: Any) -> Change:
    """An event about the pod of learner 0."""
    return event(reason, message, about="uid-0", **kwargs)


def group(*learners: Any) -> list[Change]:
    """Learners by ordinal, each a container or the changes of its pod."""
    changes = [stateful_set(len(learners))]
    for ordinal, learner in enumerate(learners):
        changes += learner if isinstance(learner, list) else [pod(ordinal, learner)]
    return changes


def one(*changes: Change) -> list[Change]:
    """One learner that was up, and then these changes."""
    return [stateful_set(), pod(0, running()), *changes]


SITUATIONS: dict[str, tuple[list[Change], Verdict]] = {
    # -- Start
    "nothing is there yet": ([], PENDING),
    "no status was written yet": ([stateful_set(status={})], PENDING),
    "it is created and not started": ([stateful_set(0)], PENDING),
    "pods are on their way": ([stateful_set(up=0), pod(0, phase="Pending")], waits(Reason.NOT_READY, "not ready yet")),
    "an image is being pulled": ([stateful_set(up=0), pod(0, waiting())], waits(Reason.NOT_READY, "not ready yet")),
    "one of two is up": ([stateful_set(2, up=1), pod(0, running()), pod(1, waiting())], waits(Reason.NOT_READY, "not ready", 1)),
    "one of two has no pod": ([stateful_set(2, up=1), pod(0, running())], PENDING),
    "both are up": (group(running(), running()), RUNNING),
    "counters are about an older generation": ([stateful_set(status={"observedGeneration": 1, "updatedReplicas": 1, "availableReplicas": 1}), pod(0, running())], PENDING),
    "counters of zero are left out": ([stateful_set(status={"observedGeneration": 2, "replicas": 1}), pod(0, running())], PENDING),
    "a pod is of an older revision": ([stateful_set(status={"observedGeneration": 2, "updatedReplicas": 0, "availableReplicas": 1}), pod(0, running())], PENDING),
    "ready for a moment is not available": ([stateful_set(status={"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1}), pod(0, running())], PENDING),
    "an early finisher has been ready": (group(running(restarts=1, last=end(0)), running()), RUNNING),
    "an early finisher of native completion is no longer available": ([stateful_set(2, up=1), pod(0, ended(0)), pod(1, running())], RUNNING),
    # -- End
    "all ended well": (group(ended(0), ended(0)), SUCCEEDED),
    "a learner has a file that another one lacks": (group(ended(0, message="\x1e- model\n\x1e"), ended(0, message=f"\x1e{'0' * 64} 5 model\n\x1e")), SUCCEEDED),
    "no learner has a file that was named": (group(ended(0, message="1\x1e- model\n\x1e"), ended(0, message="2\x1e- model\n\x1e")), fails(Reason.ARTIFACTS, "no file 'model'", None)),
    "all ended well and are held": (group(running(restarts=1, last=end(0)), running(restarts=1, last=end(0))), SUCCEEDED),
    "one has ended, one runs": ([stateful_set(2, up=1), pod(0, ended(0)), pod(1, running())], RUNNING),
    "the last one fails": (group(ended(0), ended(1)), fails(Reason.EXIT_CODE, "ended with exit code 1", 1)),
    "a failure outranks a missing learner": ([stateful_set(2), pod(0, ended(1))], fails(Reason.EXIT_CODE, "exit code 1")),
    "a failure while another one waits": (group(ended(1), waiting()), fails(Reason.EXIT_CODE, "exit code 1")),
    "exit code with a message": (group(ended(3, message="no data\n")), fails(Reason.EXIT_CODE, "ended with exit code 3: no data")),
    "exit code 255 is a code": (group(ended(255)), fails(Reason.EXIT_CODE, "exit code 255")),
    "a failure is told from the holder's past": (group(running(restarts=1, last=end(7))), fails(Reason.EXIT_CODE, "exit code 7")),
    "SIGKILL": (group(ended(137)), fails(Reason.SIGNAL, "was ended by SIGKILL (exit code 137)")),
    "SIGSEGV": (group(ended(139)), fails(Reason.SIGNAL, "SIGSEGV")),
    "a liveness probe failed": ([*group(ended(143)), in_pod("Unhealthy", "Liveness probe failed: no answer")], fails(Reason.SIGNAL, "SIGTERM (exit code 143; Liveness probe failed: no answer)")),
    "out of memory": (group(ended(137, "OOMKilled")), fails(Reason.OOM_KILLED, "ran out of memory (exit code 137)")),
    "out of memory with exit code 0": (group(ended(0, "OOMKilled")), fails(Reason.OOM_KILLED, "ran out of memory (exit code 0)")),
    "out of memory, and held": (group(running(restarts=1, last=end(1, "OOMKilled"))), fails(Reason.OOM_KILLED, "(exit code 1)")),
    "nothing is left but it ended well": ([*group(ended(0)), removed(stateful_set())], SUCCEEDED),
    # -- The holder's own restarts
    "the holder was killed": (group(ended(137, at=20, restarts=1, last=end(0))), SUCCEEDED),
    "the holder waits for its next start": ([*group(running(restarts=1, last=end(0))), pod(0, waiting("CrashLoopBackOff", BACK_OFF, restarts=1, last=end(137, at=20)))], SUCCEEDED),
    "nobody saw the record, and the holder waits": ([stateful_set(up=0), pod(0, waiting("CrashLoopBackOff", BACK_OFF, restarts=1, last=end(137, at=20)))], waits(Reason.NOT_READY, "not ready yet")),
    "the record is told again": (group(ended(4, at=30, restarts=2, last=end(137, at=20))), fails(Reason.EXIT_CODE, "exit code 4")),
    "the record was told again, and waits": (group(waiting("CrashLoopBackOff", BACK_OFF, restarts=2, last=end(0, at=30))), SUCCEEDED),
    "the record was told again, and is held": (group(running(restarts=3, last=end(0, at=30))), SUCCEEDED),
    "the holder has forgotten how the learner ended": (group(running(restarts=1)), fails(Reason.NODE_LOST, "how its command ended is not known")),
    # -- Root cause
    "the first to fail is named": (group(ended(1, at=12), ended(2, at=11), ended(3, at=13)), fails(Reason.EXIT_CODE, "exit code 2", 1)),
    "SIGTERM comes last, whatever the clock says": (group(ended(143, at=9), ended(1, at=12)), fails(Reason.EXIT_CODE, "exit code 1", 1)),
    "of one second, OOM before an exit code": (group(ended(1), ended(137, "OOMKilled")), fails(Reason.OOM_KILLED, "memory", 1)),
    "of one second, SIGKILL before an exit code": (group(ended(1), ended(137)), fails(Reason.SIGNAL, "SIGKILL", 1)),
    "of one second, an exit code before SIGABRT": (group(ended(134), ended(1)), fails(Reason.EXIT_CODE, "exit code 1", 1)),
    "of one second, SIGABRT before SIGTERM": (group(ended(143), ended(134)), fails(Reason.SIGNAL, "SIGABRT", 1)),
    "of one second and one kind, the lowest ordinal": (group(ended(2), ended(1)), fails(Reason.EXIT_CODE, "exit code 2", 0)),
    "a name that no image has comes before its victims": (group(ended(1), waiting("InvalidImageName", "bad")), fails(Reason.IMAGE_NAME, "bad", 1)),
    "an eviction comes before those that miss the evicted": (group(ended(1, at=9), [pod(1, ended(143, at=20), deleted=8, conditions=(disrupted("EvictionByEvictionAPI"),))]), fails(Reason.EVICTED, "evicted", 1)),
    "all were ended by SIGTERM": (group(ended(143, at=12), ended(143, at=11)), fails(Reason.SIGNAL, "SIGTERM", 1)),
    # -- Pods that are ended from outside
    "a pod is deleted while it runs": (one(pod(0, running(), deleted=8)), fails(Reason.DELETED, "pod digits-0 on node node-a was deleted while it ran")),
    "a polite end proves nothing": (one(pod(0, running(), deleted=8), pod(0, ended(0, at=9), deleted=8, phase="Succeeded")), fails(Reason.DELETED, "deleted")),
    "not even in a pod's last moment": (one(pod(0, running(), deleted=8), removed(pod(0, ended(0, at=9), deleted=10, grace=0, phase="Succeeded"))), fails(Reason.DELETED, "deleted")),
    "only the last moment was seen": (one(removed(pod(0, ended(0, at=9), deleted=10, grace=0))), fails(Reason.DELETED, "deleted")),
    "it had ended before it was deleted": (one(pod(0, ended(0, at=7), deleted=8)), SUCCEEDED),
    "it had ended, was held and was deleted": (one(pod(0, running(restarts=1, last=end(0)), deleted=8)), SUCCEEDED),
    "it was seen to end, then it was deleted": (one(pod(0, ended(0)), removed(pod(0, ended(0), deleted=10, grace=0))), SUCCEEDED),
    "it had failed before it was deleted": (one(pod(0, ended(3, at=7), deleted=8)), fails(Reason.EXIT_CODE, "exit code 3")),
    "a pod is gone": (one(removed(pod(0, running()))), fails(Reason.DELETED, "deleted while it ran")),
    "a pod is gone, and nobody saw it go": (one(pod(0, waiting(), uid="new")), fails(Reason.DELETED, "deleted while it ran")),
    "a new pod in place of a lost one heals nothing": (one(removed(pod(0, running())), pod(0, running(), uid="new")), fails(Reason.DELETED, "deleted")),
    "a pod that had not begun may be replaced": ([stateful_set(), pod(0, waiting()), removed(pod(0, waiting())), pod(0, running(), uid="new")], RUNNING),
    "evicted through the API": (one(pod(0, running(), deleted=8, conditions=(disrupted("EvictionByEvictionAPI", message="Eviction API: evicting"),))), fails(Reason.EVICTED, "on node node-a was evicted: Eviction API")),
    "marked for eviction, and still running": (one(pod(0, running(), conditions=(disrupted("EvictionByEvictionAPI"),))), RUNNING),
    "marked for eviction, and ended": (one(pod(0, ended(143, at=9), conditions=(disrupted("EvictionByEvictionAPI"),))), fails(Reason.EVICTED, "evicted")),
    "marked for eviction after it had ended": (one(pod(0, ended(0, at=7), conditions=(disrupted("EvictionByEvictionAPI"),))), SUCCEEDED),
    "evicted by kubelet": (one(pod(0, ended(143), phase="Failed", reason="Evicted", message="The node was low on memory.")), fails(Reason.EVICTED, "was evicted: The node was low on memory.")),
    "evicted by kubelet, with the condition": (one(pod(0, ended(137), phase="Failed", reason="Evicted", conditions=(disrupted("TerminationByKubelet"),))), fails(Reason.EVICTED, "evicted")),
    "evicted by kubelet after it had ended": (one(pod(0, ended(0, at=20, restarts=1, last=end(0)), phase="Failed", reason="Evicted")), SUCCEEDED),
    "its container is of unknown status": (one(pod(0, ended(137, "ContainerStatusUnknown"), phase="Failed", reason="Evicted")), fails(Reason.EVICTED, "evicted")),
    "the runtime lost it over a reboot": (one(pod(0, running(restarts=1, last=end(255, "Unknown")))), fails(Reason.NODE_LOST, "went down with its node")),
    "preempted by the scheduler": (one(pod(0, running(), deleted=8, conditions=(disrupted("PreemptionByScheduler"),))), fails(Reason.PREEMPTED, "was preempted")),
    "preempted by kubelet": (one(pod(0, ended(137), phase="Failed", reason="Preempting", message="Preempted in order to admit critical pod")), fails(Reason.PREEMPTED, "critical pod")),
    "its node is shut down": (one(pod(0, ended(143), phase="Failed", reason="Terminated", message="Pod was terminated in response to imminent node shutdown.", conditions=(disrupted("TerminationByKubelet"),))), fails(Reason.NODE_LOST, "imminent node shutdown")),
    "its node is tainted": (one(pod(0, running(), deleted=8, conditions=(disrupted("DeletionByTaintManager"),))), fails(Reason.EVICTED, "was evicted")),
    "its node does not answer": (one(pod(0, running(), conditions=SILENT)), waits(Reason.NODE_NOT_READY, "node node-a does not answer")),
    "its node does not answer and is given up": (one(pod(0, running(), deleted=8, conditions=(*SILENT, disrupted("DeletionByTaintManager")))), fails(Reason.NODE_LOST, "was lost")),
    "its node is gone": (one(pod(0, running(), deleted=8, conditions=(disrupted("DeletionByPodGC"),))), fails(Reason.NODE_LOST, "was lost")),
    "its node is gone, and its pod is said to have failed": (one(pod(0, running(), phase="Failed", conditions=(disrupted("DeletionByPodGC"),))), fails(Reason.NODE_LOST, "was lost")),
    "its phase is unknown": (one(pod(0, running(), phase="Unknown", conditions=SILENT[:1])), waits(Reason.NODE_NOT_READY, "does not answer")),
    # -- The StatefulSet
    "it was deleted": (one(removed(stateful_set())), fails(Reason.DELETED, "StatefulSet digits was deleted from outside", None)),
    "it is being deleted, and its pods with it": (one(stateful_set(deleted=True), pod(0, running(), deleted=8)), fails(Reason.DELETED, "StatefulSet digits was deleted", None)),
    "it is being deleted, and its pods tell the end in a moment": (one(stateful_set(deleted=True)), RUNNING),
    "it is kept at rest after its end": (one(stateful_set(0, reported=True), pod(0, running(restarts=1, last=end(3)), deleted=20)), fails(Reason.EXIT_CODE, "exit code 3")),
    "it is kept at rest, and its pods tell the end in a moment": (one(stateful_set(0, reported=True)), PENDING),
    "it was deleted after a learner had failed": (one(pod(0, ended(5, at=7)), removed(stateful_set())), fails(Reason.EXIT_CODE, "exit code 5")),
    "another one of its name is not ours": ([stateful_set(uid="other")], PENDING),
    "a pod of another one of its name is not ours": ([stateful_set(up=0), pod(0, ended(1), owner="other")], PENDING),
    "scaled down": ([*group(running(), running()), stateful_set(1, generation=3), pod(1, running(), deleted=8)], fails(Reason.SCALED, "scaled to 1 from outside", None)),
    "scaled up": ([*group(running()), stateful_set(3, generation=3)], fails(Reason.SCALED, "scaled to 3", None)),
    "scaled to 0 while it ran": (one(stateful_set(0, generation=3), removed(pod(0, running()))), fails(Reason.SCALED, "scaled to 0", None)),
    "scaled down after a failure": (one(pod(0, ended(5)), stateful_set(0, generation=3)), fails(Reason.EXIT_CODE, "exit code 5")),
    "all learners are about to be started again": (one(pod(0, running(), deleted=8), stateful_set(0, restarts='[{"at": 1767268840}]')), PENDING),
    "all learners were started again": (one(removed(pod(0, running())), stateful_set(restarts='[{"at": 1767268840}]', generation=4), pod(0, running(), uid="new", created=41)), RUNNING),
    # -- Pods that cannot be created
    "quota": ([stateful_set(up=0), not_created(0, 'pods "digits-0" is forbidden: exceeded quota: gpus, requested: 4')], waits(Reason.QUOTA, 'pods "digits-0" is forbidden: exceeded quota: gpus')),
    "quota for what was not given": ([stateful_set(up=0), not_created(0, "failed quota: disk: must specify limits.ephemeral-storage")], waits(Reason.ADMISSION, "must specify")),
    "admission": ([stateful_set(up=0), not_created(0, 'admission webhook "policy.example.com" denied the request: no GPUs on Fridays')], waits(Reason.ADMISSION, "no GPUs on Fridays")),
    "no service account": ([stateful_set(up=0), not_created(0, 'error looking up service account ml/absent: serviceaccount "absent" not found')], waits(Reason.SERVICE_ACCOUNT, '"absent" not found')),
    "a pod that is not valid": ([stateful_set(up=0), not_created(0, 'Pod "digits-0" is invalid: spec.containers[0].image: Required value')], waits(Reason.CONTAINER_CONFIG, "Required value")),
    "what kept another pod from being created says nothing": ([stateful_set(2, up=0), not_created(1, "exceeded quota")], waits(Reason.QUOTA, "exceeded quota", 1)),
    "what kept it from being created has passed": ([stateful_set(), not_created(0, "exceeded quota"), pod(0, running())], RUNNING),
    "an earlier one of its name had no room": ([stateful_set(up=0), not_created(0, "exceeded quota", about="earlier")], PENDING),
    # -- Pods that cannot start
    "no room": ([stateful_set(up=0), pod(0, phase="Pending", conditions=(unscheduled("0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),))], waits(Reason.UNSCHEDULABLE, "Insufficient nvidia.com/gpu")),
    "a scheduling gate": ([stateful_set(up=0), pod(0, phase="Pending", conditions=(unscheduled("non-empty scheduling gates", "SchedulingGated"),))], waits(Reason.UNSCHEDULABLE, "scheduling gates")),
    "no claim": ([stateful_set(up=0), pod(0, phase="Pending", conditions=(unscheduled('persistentvolumeclaim "data" not found.'),))], waits(Reason.VOLUME_NOT_FOUND, '"data" not found')),
    "an unbound claim": ([stateful_set(up=0), pod(0, phase="Pending", conditions=(unscheduled("pod has unbound immediate PersistentVolumeClaims."),))], waits(Reason.VOLUME, "unbound")),
    "no Secret to mount": (has_events(in_pod("FailedMount", 'MountVolume.SetUp failed for volume "c" : secret "absent" not found')), waits(Reason.VOLUME_NOT_FOUND, '"absent" not found')),
    "a host path that is a file": (has_events(in_pod("FailedMount", "hostPath type check failed: /data is not a directory")), waits(Reason.VOLUME_NOT_FOUND, "is not a directory")),
    "a driver that is not there yet": (has_events(in_pod("FailedMount", "driver name nfs.csi.k8s.io not found in the list of registered CSI drivers")), waits(Reason.VOLUME, "registered CSI drivers")),
    "a volume that another node holds": (has_events(in_pod("FailedAttachVolume", "Multi-Attach error for volume")), waits(Reason.VOLUME, "Multi-Attach error")),
    "a mount that failed at first": (has_events(in_pod("FailedMount", "timeout"), in_pod("Unhealthy", "Readiness probe failed: 503", at=8), container=running() | {"ready": False}), waits(Reason.NOT_READY, "Readiness probe failed: 503")),
    "no sandbox": (has_events(in_pod("FailedCreatePodSandBox", "failed to set up network")), waits(Reason.NOT_READY, "failed to set up network")),
    "an image name that kubelet refuses": ([stateful_set(up=0), pulls("couldn't parse image name", "InvalidImageName")], fails(Reason.IMAGE_NAME, "couldn't parse")),
    "an image name that the runtime refuses": ([stateful_set(up=0), pulls("invalid reference format")], fails(Reason.IMAGE_NAME, "invalid reference format")),
    "no image, which may not be pulled": ([stateful_set(up=0), pulls("", "ErrImageNeverPull")], waits(Reason.IMAGE_NOT_FOUND, "digits:1: ErrImageNeverPull")),
    "no image": ([stateful_set(up=0), pulls(PULL + "registry.example.com/ml/digits:1: not found")], waits(Reason.IMAGE_NOT_FOUND, "not found")),
    "no manifest": ([stateful_set(up=0), pulls(PULL + "manifest unknown")], waits(Reason.IMAGE_NOT_FOUND, "manifest unknown")),
    "access denied": ([stateful_set(up=0), pulls(PULL + "pull access denied, repository does not exist or may require authorization")], waits(Reason.IMAGE_DENIED, "pull access denied")),
    "no credentials": ([stateful_set(up=0), pulls(PULL + "no basic auth credentials")], waits(Reason.IMAGE_DENIED, "no basic auth")),
    "401": ([stateful_set(up=0), pulls(PULL + "unexpected status: 401 Unauthorized")], waits(Reason.IMAGE_DENIED, "401")),
    "a registry that is down": ([stateful_set(up=0), pulls(PULL + "dial tcp 10.0.0.9:443: connect: connection refused")], waits(Reason.IMAGE_UNAVAILABLE, "connection refused")),
    "a registry that is asked too much": ([stateful_set(up=0), pulls(PULL + "429 Too Many Requests")], waits(Reason.IMAGE_UNAVAILABLE, "429")),
    "a back-off says the cause only by an event": ([*has_events(in_pod("Failed", 'Failed to pull image "registry.example.com/ml/digits:1": manifest unknown')), pulls("Back-off pulling image", "ImagePullBackOff")], waits(Reason.IMAGE_NOT_FOUND, "manifest unknown")),
    "a back-off without a cause": ([stateful_set(up=0), pulls("Back-off pulling image", "ImagePullBackOff")], waits(Reason.IMAGE_UNAVAILABLE, "Back-off")),
    "the words in an image's name mean nothing": ([stateful_set(up=0), pod(0, waiting("ErrImagePull", "pull denied-things:1: timeout") | {"image": "denied-things:1"})], waits(Reason.IMAGE_UNAVAILABLE, "timeout")),
    "no folder of the node for a sub path": ([stateful_set(up=0), pod(0, waiting("CreateContainerConfigError", "stat /srv/ml: no such file or directory"))], waits(Reason.VOLUME_NOT_FOUND, "a volume's folder is missing: stat /srv/ml: no such file or directory")),
    "no Secret for the environment": ([stateful_set(up=0), pod(0, waiting("CreateContainerConfigError", 'secret "absent" not found'))], waits(Reason.CONTAINER_CONFIG, '"absent" not found')),
    "a container that cannot be created": ([stateful_set(up=0), pod(0, waiting("CreateContainerError", "failed to reserve container name"))], waits(Reason.CONTAINER_CONFIG, "reserve")),
    "no shell in the image": ([stateful_set(up=0), pod(0, waiting("RunContainerError", "bash: not found", last=end(128, "StartError", message="bash: not found")))], waits(Reason.CONTAINER_CONFIG, "could not start (exit code 128): bash: not found")),
    "no shell in the image, tried again": ([stateful_set(up=0), pod(0, waiting("CrashLoopBackOff", BACK_OFF, restarts=1, last=end(128, "StartError")))], waits(Reason.CONTAINER_CONFIG, "could not start")),
    "no command in the image": ([stateful_set(up=0), pod(0, ended(128, "StartError"))], waits(Reason.CONTAINER_CONFIG, "could not start")),
    # -- Other containers
    "an init container failed once": ([stateful_set(up=0), pod(0, waiting("PodInitializing"), init=ended(1, name="prepare"))], waits(Reason.NOT_READY, "not ready yet")),
    "an init container failed twice": ([stateful_set(up=0), pod(0, waiting("PodInitializing"), init=ended(1, message="no data", restarts=1, name="prepare"))], fails(Reason.INIT_CONTAINER, "init container prepare: exit code 1: no data")),
    "an init container crash-loops": ([stateful_set(up=0), pod(0, waiting("PodInitializing"), init=waiting("CrashLoopBackOff", restarts=1, last=end(1, "OOMKilled"), name="prepare"))], fails(Reason.INIT_CONTAINER, "prepare: exit code 1: OOMKilled")),
    "an init container's image is absent": ([stateful_set(up=0), pod(0, waiting("PodInitializing"), init=waiting("ErrImagePull", "not found", name="prepare"))], waits(Reason.IMAGE_NOT_FOUND, "init container prepare: image")),
    "an init container is done": ([stateful_set(), pod(0, running(), init=ended(0, name="prepare"))], RUNNING),
    "a native sidecar crash-loops beside the learner": ([stateful_set(up=0), pod(0, running() | {"ready": False}, init=waiting("CrashLoopBackOff", restarts=2, last=end(4), name="proxy"))], waits(Reason.CRASH_LOOP, "container proxy: exit code 4")),
    "a sidecar stands first": ([stateful_set(), pod(0, running(name="aaa"), ended(0))], SUCCEEDED),
    "a sidecar stands first, and the learner fails": ([stateful_set(), pod(0, running(name="aaa"), ended(3))], fails(Reason.EXIT_CODE, "exit code 3")),
    "a sidecar that has ended ends nothing": ([stateful_set(up=0), pod(0, ended(1, name="aaa"), running())], waits(Reason.NOT_READY, "not ready yet")),
    "a sidecar crash-loops": ([stateful_set(up=0), pod(0, waiting("CrashLoopBackOff", restarts=3, last=end(5), name="aaa"), running())], waits(Reason.CRASH_LOOP, "container aaa: exit code 5")),
    "a sidecar cannot be pulled": ([stateful_set(up=0), pod(0, running(), waiting("ErrImagePull", "not found", name="aaa"))], waits(Reason.NOT_READY, "container aaa: image")),
    "the holder cannot be pulled": ([stateful_set(up=0), pod(0, running(), waiting("ErrImagePull", "not found", name="holder"))], waits(Reason.IMAGE_NOT_FOUND, "cannot be pulled")),
    "the learner is not ready": (has_events(in_pod("Unhealthy", "Readiness probe failed: 503"), container=running() | {"ready": False}), waits(Reason.NOT_READY, "Readiness probe failed: 503")),
    # -- What nobody watched
    "an earlier pod had begun": ([stateful_set(), event("Started", about="earlier", kind="Normal", path=LEARNER, at=3), pod(0, running(), created=20)], fails(Reason.DELETED, "an earlier pod digits-0 was deleted while it ran")),
    "an earlier pod had begun, and the new one failed": ([stateful_set(), event("Started", about="earlier", kind="Normal", path=LEARNER, at=3), pod(0, ended(1, at=40), created=20)], fails(Reason.DELETED, "an earlier pod digits-0 was deleted")),
    "an earlier pod had begun, and the new one went well": ([stateful_set(), event("Started", about="earlier", kind="Normal", path=LEARNER, at=3), pod(0, ended(0, at=40), created=20)], SUCCEEDED),
    "an earlier pod was preempted": ([stateful_set(), event("Started", about="earlier", kind="Normal", path=LEARNER, at=3), event("Preempted", "by a pod", about="earlier", kind="Normal"), pod(0, running(), created=20)], fails(Reason.PREEMPTED, "was preempted: by a pod")),
    "an earlier pod was evicted": ([stateful_set(), event("Started", about="earlier", kind="Normal", path=LEARNER, at=3), event("Evicted", "low on memory", about="earlier"), pod(0, running(), created=20)], fails(Reason.EVICTED, "was evicted: low on memory")),
    "an earlier pod was on a node that failed": ([stateful_set(), event("Started", about="earlier", kind="Normal", path=LEARNER, at=3), event("TaintManagerEviction", about="", kind="Normal"), event("NodeNotReady", "Node is not ready", about="earlier"), pod(0, running(), created=20)], fails(Reason.NODE_LOST, "Node is not ready")),
    "an earlier pod was of an earlier training": ([stateful_set(), event("Started", about="earlier", kind="Normal", path=LEARNER, at=0), pod(0, running(), created=20)], RUNNING),
    "an earlier pod was of an earlier start of the group": ([stateful_set(restarts='[{"at": 1767268840}]'), event("Started", about="earlier", kind="Normal", path=LEARNER, at=3), pod(0, running(), created=41)], RUNNING),
    "only another container of an earlier pod had begun": ([stateful_set(), event("Started", about="earlier", kind="Normal", path="spec.containers{aaa}", at=3), pod(0, running(), created=20)], RUNNING),
    "its own start is known before the pod": ([stateful_set(up=0), event("Started", about="uid-0", kind="Normal", path=LEARNER, at=3)], PENDING),
}  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
def test_verdict(situation: str) -> None:
    changes, verdict = SITUATIONS[situation]
    wanted = [obj["spec"]["replicas"] for kind, _, obj in changes if kind == "StatefulSet"]
    status = compute_status(observe(*changes), learners=wanted[0] or 1 if wanted else 1)
    trouble = status.trouble
    assert Verdict(
        status.phase,
        trouble.reason if trouble is not None else None,
        verdict.fragment,
        trouble.ordinal if trouble is not None else None,
        status.ready,
    ) == verdict  # fmt: skip
    assert verdict.fragment in (trouble.message if trouble is not None else "")


def test_final_reasons_end_a_training_and_the_others_may_pass() -> None:
    by_phase: dict[str, set[Any]] = {"Failed": set(), "Pending": set()}
    for _, verdict in SITUATIONS.values():
        if verdict.reason is not None:
            by_phase[verdict.phase].add(verdict.reason)
    assert by_phase["Pending"] == set(GRACE)
    # The clock and the user speak elsewhere.
    assert by_phase["Failed"] == set(Reason) - set(GRACE) - {Reason.TIMEOUT, Reason.KILLED}


@pytest.mark.parametrize(
    ("message", "result"),
    [("", None), ('{"a": 1}\n', {"a": 1}), ("two\nlines\n", "two\nlines"), ("good", "good")],
)
def test_result_is_the_same_when_a_shell_has_told_it_again(message: str, result: Any) -> None:
    record = ExitRecord(0, "Completed", message, started=None, finished=None)
    assert Learner(0, "digits-0", record=record).result == result


def test_training_of_no_learners_is_neither_ready_nor_ended() -> None:
    assert compute_status(observe(stateful_set(0)), learners=0).phase is Phase.PENDING


COLLATERAL: dict[str, tuple[list[Change], list[int]]] = {
    "ended by SIGTERM": (group(ended(1), ended(143), ended(143)), [1, 2]),
    "later exit codes": (group(ended(1, at=12), ended(7, at=10), ended(1, at=11)), [0, 2]),
    "later signals": (group(ended(7, at=10), ended(139, at=11)), [1]),
    "aborted in the same second": (group(ended(7), ended(134)), [1]),
    "an exit code in the second of an OOM": (group(ended(1), ended(137, "OOMKilled")), [0]),
    "two of a kind in one second say nothing": (group(ended(1), ended(1)), []),
    "OOM is nobody else's fault": (group(ended(7), ended(137, "OOMKilled", at=12)), []),
    "an eviction is nobody else's fault": (
        group(ended(7, at=2), [pod(1, running(), deleted=8)]),
        [],
    ),
    "those that missed an evicted one": (
        group([pod(0, ended(0, at=30), deleted=8)], ended(1, at=9)),
        [1],
    ),
    "who succeeded is not concerned": (group(ended(0), ended(7)), []),
    "the only one": (group(ended(143)), []),
    "all but the first by SIGTERM": (group(ended(143, at=9), ended(143, at=10)), [1]),
}


@pytest.mark.parametrize("situation", COLLATERAL)
def test_collateral_is_told_from_the_root_cause(situation: str) -> None:
    changes, collateral = COLLATERAL[situation]
    learners = changes[0][2]["spec"]["replicas"]
    status = compute_status(observe(*changes), learners=learners)
    assert [row.ordinal for row in status.learners if row.collateral] == collateral
