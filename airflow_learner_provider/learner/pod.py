"""The pod template of the learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubernetes.client import (
    V1Container,
    V1LocalObjectReference,
    V1ObjectMeta,
    V1PodSpec,
    V1PodTemplateSpec,
    V1Toleration,
    V1Volume,
)

# From before tolerations were a field of the pod: no scheduler of today reads them.
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/nvidiaGPU": '{ "AllocationPriority": "Dense" }',
    "scheduler.alpha.kubernetes.io/tolerations": (
        '[ { "key": "dedicated", "operator": "Equal", "value": "gpu-task" } ]'
    ),
}


def create_pod_spec(
    containers: Sequence[V1Container] | None,
    volumes: Sequence[V1Volume] | None,
    labels: Mapping[str, str] | None,
    node_selector: Mapping[str, str] | None,
    image_pull_secret: str | None,
    *,
    init_containers: Sequence[V1Container] = (),
) -> V1PodTemplateSpec:
    """Build the pod template of the learners.

    Learners tolerate nodes that are kept for GPU tasks, and get no service account token: user code
    has no business with the Kubernetes API.

    :param containers: containers of the pod, the learner's first.
    :param volumes: volumes of the pod.
    :param labels: labels of the pod; ``service: dlaas-learner`` is added.
    :param node_selector: labels that a node must have.
    :param image_pull_secret: name of the Secret that images are pulled with, if one is needed.
    :param init_containers: containers that end before those of the pod begin.
    """
    pull_secrets = [V1LocalObjectReference(name=image_pull_secret)] if image_pull_secret else None
    return V1PodTemplateSpec(
        metadata=V1ObjectMeta(
            labels={**(labels or {}), "service": "dlaas-learner"},
            annotations=dict(_ANNOTATIONS),
        ),
        spec=V1PodSpec(
            containers=list(containers or ()),
            init_containers=list(init_containers) or None,
            volumes=list(volumes or ()) or None,
            node_selector=dict(node_selector or {}) or None,
            image_pull_secrets=pull_secrets,
            tolerations=[
                V1Toleration(
                    key="dedicated", operator="Equal", value="gpu-task", effect="NoSchedule"
                )
            ],
            automount_service_account_token=False,
        ),
    )
