"""The Secrets with the keys of the data stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from kubernetes.client import V1ObjectMeta, V1Secret

from airflow_learner_provider.learner.config import DEFAULT_CONFIG, LearnerConfig
from airflow_learner_provider.learner.volumes import COS_DRIVER


@dataclass(frozen=True)
class COSVolumeSecret:
    """The keys of an object store.

    :param id: name of the Secret.
    :param training_id: the training it belongs to.
    :param username: the access key.
    :param api_key: the secret key; it does not show in ``repr``.
    """

    id: str = ""
    training_id: str = ""
    username: str = ""
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class SSHVolumeSecret:
    """The ssh keys of a training; the seed names this type and builds nothing from it.

    :param id: name of the Secret.
    :param training_id: the training it belongs to.
    :param framework: its framework.
    :param version: version of the framework.
    """

    id: str = ""
    training_id: str = ""
    framework: str = ""
    version: str = ""


@dataclass(frozen=True)
class Secrets:
    """The keys of a learner's data stores; one that is None is not there.

    :param training_data_secret: keys to read the training data.
    :param results_dir_secret: keys to write the results.
    """

    training_data_secret: COSVolumeSecret | None = None
    results_dir_secret: COSVolumeSecret | None = None


def create_volume_secrets_spec(
    secrets: Secrets, *, config: LearnerConfig = DEFAULT_CONFIG
) -> list[V1Secret]:
    """Build the Secrets that the object store's driver reads: training data first, then results.

    :param secrets: the keys.
    :param config: gives the namespace.
    """
    return [
        V1Secret(
            api_version="v1",
            kind="Secret",
            metadata=V1ObjectMeta(
                name=secret.id or None,
                namespace=config.learner_namespace or None,
                labels={"training_id": secret.training_id},
            ),
            type=COS_DRIVER,
            string_data={"access-key": secret.username, "secret-key": secret.api_key},
        )
        for secret in (secrets.training_data_secret, secrets.results_dir_secret)
        if secret is not None
    ]
