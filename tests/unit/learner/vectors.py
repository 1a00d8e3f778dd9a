"""What running the original Go package gave, and how to ask ours for the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from kubernetes.client import (
    ApiClient,
    V1Container,
    V1EnvVar,
    V1PodTemplateSpec,
    V1Volume,
    V1VolumeMount,
)

from airflow_learner_provider import learner

Json = Any
Model = TypeVar("Model")
GOLDEN = Path(__file__).parents[2] / "data" / "golden"
VECTORS: list[dict[str, Json]] = json.loads((GOLDEN / "learner_vectors.json").read_text("utf-8"))


def ids(vectors: list[dict[str, Json]]) -> list[str]:
    return [f"{vector['function']}: {vector['case']}" for vector in vectors]


def model(value: Json, kind: type[Model]) -> Model:
    """Return Kubernetes JSON as a model of the client."""
    return ApiClient().deserialize(SimpleNamespace(data=json.dumps(value)), kind)


def models(values: list[Json] | None, kind: type[Model]) -> list[Model] | None:
    return None if values is None else [model(value, kind) for value in values]


def as_json(built: object) -> Json:
    return ApiClient().sanitize_for_serialization(built)


def config_of(vector: dict[str, Json]) -> learner.LearnerConfig:
    config = dict(vector["config"])
    if config["learner_config_path"] is not None:
        config["learner_config_path"] = GOLDEN / config["learner_config_path"]
    return learner.LearnerConfig(**config)


def image_of(value: dict[str, Json]) -> learner.Image:
    names = ("framework", "version", "tag", "registry", "namespace")
    return learner.Image(**{name: value[name] for name in names})


def volumes_of(value: dict[str, Json]) -> learner.Volumes:
    def volume(fields: Json) -> learner.COSVolume | None:
        if fields is None:
            return None
        mount_spec = learner.VolumeMountSpec(**fields["mount_spec"])
        return learner.COSVolume(**{**fields, "mount_spec": mount_spec})

    return learner.Volumes(**{name: volume(fields) for name, fields in value.items()})


def build_container(value: dict[str, Json], config: learner.LearnerConfig) -> Any:
    return learner.create_container_spec(
        learner.Container(
            image=image_of(value),
            resources=learner.Resources(value["cpus"], value["memory"], value["gpus"]),
            volume_mounts=models(value["volume_mounts"], V1VolumeMount),
            name=value["name"],
            command=value["command"],
            env_vars=models(value["env"], V1EnvVar),
        ),
        config=config,
    )


def build_pod(value: dict[str, Json], _: learner.LearnerConfig) -> Any:
    return learner.create_pod_spec(
        models(value["containers"], V1Container),
        models(value["volumes"], V1Volume),
        value["labels"],
        value["node_selector"],
        value["image_pull_secret"],
    )


def build_stateful_set(value: dict[str, Json], _: learner.LearnerConfig) -> Any:
    template = copy.deepcopy(value["pod_template_spec"])
    template["spec"]["containers"] = template["spec"]["containers"] or []
    return learner.create_stateful_set_spec_for_learner(
        value["name"],
        value["servicename"],
        value["replicas"],
        model(template, V1PodTemplateSpec),
    )


def build_volume_secrets(value: dict[str, Json], config: learner.LearnerConfig) -> Any:
    secrets = {
        name: None if fields is None else learner.COSVolumeSecret(**fields)
        for name, fields in value.items()
    }
    return learner.create_volume_secrets_spec(learner.Secrets(**secrets), config=config)


def build_env(value: dict[str, Json], _: learner.LearnerConfig) -> Any:
    return learner.populate_learner_env_variables_and_labels(
        models(value["env"], V1EnvVar),
        value["training_id"],
        value["num_learners"],
        value["statefulset_name"],
        value["mount_training_data_store_in_learner"],
        value["mount_results_store_in_learner"],
    )


BUILDERS: dict[str, Callable[[dict[str, Json], learner.LearnerConfig], Any]] = {
    "create_container_spec": build_container,
    "create_pod_spec": build_pod,
    "create_service_spec": lambda value, _: learner.create_service_spec(**value),
    "create_stateful_set_spec_for_learner": build_stateful_set,
    "create_volume_for_learner": lambda value, _: volumes_of(value).create_volume_for_learner(),
    "create_volume_mounts_for_learner": (
        lambda value, _: volumes_of(value).create_volume_mounts_for_learner()
    ),
    "create_volume_secrets_spec": build_volume_secrets,
    "get_learner_image_for_framework": (
        lambda value, config: learner.get_learner_image_for_framework(
            image_of(value), config=config
        )
    ),
    "populate_learner_env_variables_and_labels": build_env,
}


def build(vector: dict[str, Json]) -> Json:
    return as_json(BUILDERS[vector["function"]](vector["input"], config_of(vector)))
