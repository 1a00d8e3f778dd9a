"""The StatefulSet of the learners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kubernetes.client import (
    V1LabelSelector,
    V1ObjectMeta,
    V1PodTemplateSpec,
    V1StatefulSet,
    V1StatefulSetSpec,
)

from airflow_learner_provider.exceptions import InvalidSpecError

_MAX_REPLICAS = 2**31 - 1  # int32 in the API


def create_stateful_set_spec_for_learner(
    name: str,
    service_name: str,
    replicas: int,
    pod_template_spec: V1PodTemplateSpec,
    *,
    pod_management_policy: Literal["Parallel", "OrderedReady"] = "Parallel",
    min_ready_seconds: int = 0,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> V1StatefulSet:
    """Build the StatefulSet of the learners.

    All learners start at once unless asked otherwise: one that waits for its peers would never be
    ready, and in order the next one would never start. No old revision is kept, for a training is
    never rolled back.

    :param name: name of the StatefulSet; learner n is its pod ``<name>-<n>``.
    :param service_name: name of the Service that governs it.
    :param replicas: number of learners, 0 to 2147483647.
    :param pod_template_spec: template of the learners. The StatefulSet has its labels and selects
        pods by its ``training_id``, or by all its labels if it has no such label: a selector has to
        match the template (https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/).
    :param pod_management_policy: ``OrderedReady`` starts learners one after the other.
    :param min_ready_seconds: seconds that a learner has to be ready to count as available.
    :param namespace: its namespace, if that is not left to the caller of the API.
    :param labels: more labels of the StatefulSet.
    :param annotations: annotations of the StatefulSet.
    :raises InvalidSpecError: ``replicas`` is out of range, or the template has no labels.
    """
    if not 0 <= replicas <= _MAX_REPLICAS:
        raise InvalidSpecError(f"replicas: should be from 0 to {_MAX_REPLICAS}, not {replicas}")
    metadata = pod_template_spec.metadata
    template_labels = dict((metadata and metadata.labels) or {})
    if not template_labels:
        raise InvalidSpecError(
            "pod_template_spec.metadata.labels: should have at least one label, best training_id,"
            " for a StatefulSet selects its pods by label"
        )
    if "training_id" in template_labels:
        selector = {"training_id": template_labels["training_id"]}
    else:
        selector = dict(template_labels)
    return V1StatefulSet(
        api_version="apps/v1",
        kind="StatefulSet",
        metadata=V1ObjectMeta(
            name=name or None,
            namespace=namespace,
            labels={**template_labels, **(labels or {})},
            annotations=dict(annotations or {}) or None,
        ),
        spec=V1StatefulSetSpec(
            replicas=replicas,
            service_name=service_name,
            selector=V1LabelSelector(match_labels=selector),
            template=pod_template_spec,
            pod_management_policy=pod_management_policy,
            min_ready_seconds=min_ready_seconds or None,
            revision_history_limit=0,
        ),
    )
