"""The Service that governs the StatefulSet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubernetes.client import V1ObjectMeta, V1Service, V1ServicePort, V1ServiceSpec


def create_service_spec(
    name: str,
    training_id: str,
    *,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    extra_ports: Sequence[V1ServicePort] = (),
) -> V1Service:
    """Build the headless Service that gives each learner its name in DNS.

    Addresses are published before learners are ready: to become ready they must first find each
    other. https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#stable-network-id

    :param name: name of the Service.
    :param training_id: the training whose pods it selects, by their label ``training_id``.
    :param namespace: its namespace, if that is not left to the caller of the API.
    :param labels: more labels of the Service.
    :param extra_ports: ports beside ``ssh`` (22) and ``tf-distributed`` (2222).
    """
    return V1Service(
        api_version="v1",
        kind="Service",
        metadata=V1ObjectMeta(
            name=name or None,
            namespace=namespace,
            labels={**(labels or {}), "training_id": training_id},
        ),
        spec=V1ServiceSpec(
            cluster_ip="None",
            publish_not_ready_addresses=True,
            selector={"training_id": training_id},
            ports=[
                V1ServicePort(name="ssh", port=22, protocol="TCP"),
                V1ServicePort(name="tf-distributed", port=2222, protocol="TCP"),
                *extra_ports,
            ],
        ),
    )
