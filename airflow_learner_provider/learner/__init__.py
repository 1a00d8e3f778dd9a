"""Kubernetes objects of a training, each built by one pure function.

The names and the behaviour are those of the Go package ``learner``, the seed of this provider;
``docs/seed.md`` lists where this one differs and why. No argument is ever changed, and nothing is
read but the learner-config file that the configuration names.
"""

from airflow_learner_provider.learner.config import LearnerConfig
from airflow_learner_provider.learner.container import Container, Resources, create_container_spec
from airflow_learner_provider.learner.env import populate_learner_env_variables_and_labels
from airflow_learner_provider.learner.image import Image, get_learner_image_for_framework
from airflow_learner_provider.learner.image_pull_secret import (
    ImageLocation,
    JobDeploymentRequest,
    generate_image_pull_secret,
)
from airflow_learner_provider.learner.pod import create_pod_spec
from airflow_learner_provider.learner.secrets import (
    COSVolumeSecret,
    Secrets,
    SSHVolumeSecret,
    create_volume_secrets_spec,
)
from airflow_learner_provider.learner.service import create_service_spec
from airflow_learner_provider.learner.stateful_set import create_stateful_set_spec_for_learner
from airflow_learner_provider.learner.volumes import (
    DATA_STORE_HOST_MOUNT_VOLUME,
    DATA_STORE_TYPE_MOUNT_COS_S3,
    DATA_STORE_TYPE_MOUNT_VOLUME,
    DATA_STORE_TYPE_S3,
    COSVolume,
    VolumeMountSpec,
    Volumes,
)

__all__ = [
    "DATA_STORE_HOST_MOUNT_VOLUME",
    "DATA_STORE_TYPE_MOUNT_COS_S3",
    "DATA_STORE_TYPE_MOUNT_VOLUME",
    "DATA_STORE_TYPE_S3",
    "COSVolume",
    "COSVolumeSecret",
    "Container",
    "Image",
    "ImageLocation",
    "JobDeploymentRequest",
    "LearnerConfig",
    "Resources",
    "SSHVolumeSecret",
    "Secrets",
    "VolumeMountSpec",
    "Volumes",
    "create_container_spec",
    "create_pod_spec",
    "create_service_spec",
    "create_stateful_set_spec_for_learner",
    "create_volume_secrets_spec",
    "generate_image_pull_secret",
    "get_learner_image_for_framework",
    "populate_learner_env_variables_and_labels",
]
