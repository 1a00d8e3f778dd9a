"""The container that a learner trains in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kubernetes.client import (
    V1Capabilities,
    V1Container,
    V1ContainerPort,
    V1EnvVar,
    V1ResourceRequirements,
    V1SecurityContext,
    V1VolumeMount,
)

from airflow_learner_provider.learner.config import DEFAULT_CONFIG, LearnerConfig
from airflow_learner_provider.learner.env import unique_env_vars
from airflow_learner_provider.learner.image import Image, get_learner_image_for_framework
from airflow_learner_provider.learner.quantity import Quantity, format_quantity

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PORTS = (22, 2222)  # ssh, and the framework's own rendezvous
# ssh needs what is not dropped: SETGID, SETUID, NET_BIND_SERVICE, SYS_CHROOT and AUDIT_WRITE.
_DROPPED_CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETPCAP",
    "NET_RAW",
    "MKNOD",
    "SETFCAP",
)


@dataclass(frozen=True)
class Resources:
    """What one learner gets, each a Kubernetes quantity; None counts as 0.

    :param cpus: CPUs, such as ``2`` or ``"500m"``.
    :param memory: bytes, such as ``"8Gi"``.
    :param gpus: GPUs.
    """

    cpus: Quantity | None = None
    memory: Quantity | None = None
    gpus: Quantity | None = None


@dataclass(frozen=True)
class Container:
    """What a learner's container is made from.

    :param image: the image, by framework and version.
    :param resources: what the container requests and is limited to.
    :param volume_mounts: where its volumes are mounted.
    :param name: name of the container.
    :param command: script for ``bash -c``.
    :param env_vars: its environment.
    """

    image: Image = field(default_factory=Image)
    resources: Resources = field(default_factory=Resources)
    volume_mounts: Sequence[V1VolumeMount] | None = None
    name: str = ""
    command: str = ""
    env_vars: Sequence[V1EnvVar] | None = None


def create_container_spec(
    container: Container,
    *,
    config: LearnerConfig = DEFAULT_CONFIG,
    gpu_resource: str | None = None,
) -> V1Container:
    """Build a learner's container.

    Requests equal limits, so that the pod is of the Guaranteed class and is evicted last. No name
    is twice in its environment: the last value wins, in the first one's place.

    :param container: what it is made from.
    :param config: gives image, pull policy, and the name that GPUs are requested by.
    :param gpu_resource: another name that GPUs are requested by, such as ``amd.com/gpu``.
    :raises InvalidSpecError: a resource is not a quantity.
    """
    if gpu_resource is None:
        gpu_resource = (
            "nvidia.com/gpu" if config.has_device_plugin else "alpha.kubernetes.io/nvidia-gpu"
        )
    policy = config.image_pull_policy
    resources = {
        "cpu": format_quantity(container.resources.cpus, field="cpus"),
        "memory": format_quantity(container.resources.memory, field="memory"),
        gpu_resource: format_quantity(container.resources.gpus, field="gpus"),
    }
    return V1Container(
        name=container.name,
        image=get_learner_image_for_framework(container.image, config=config),
        image_pull_policy=policy if policy in _PULL_POLICIES else "IfNotPresent",
        command=["bash", "-c", container.command],
        env=unique_env_vars(container.env_vars or ()) or None,
        ports=[V1ContainerPort(container_port=port, protocol="TCP") for port in _PORTS],
        resources=V1ResourceRequirements(requests=resources, limits=dict(resources)),
        volume_mounts=list(container.volume_mounts or ()) or None,
        security_context=V1SecurityContext(
            capabilities=V1Capabilities(drop=list(_DROPPED_CAPABILITIES))
        ),
    )
