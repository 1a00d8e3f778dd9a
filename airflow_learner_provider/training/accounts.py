"""Accounts at object stores and registries, and the Secrets that bring them into the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.learner import (
    COSVolumeSecret,
    ImageLocation,
    JobDeploymentRequest,
    LearnerConfig,
    Secrets,
    create_volume_secrets_spec,
)
from airflow_learner_provider.learner.image_pull_secret import build_image_pull_secret
from airflow_learner_provider.training.naming import DATA_SECRET, PULL_SECRET, RESULTS_SECRET
from airflow_learner_provider.training.spec import Store, TrainingSpec

if TYPE_CHECKING:
    from kubernetes.client import V1Secret


@dataclass(frozen=True)
class Account:
    """What an Airflow connection says about an account.

    :param username: access key of an object store, or user of a registry.
    :param password: secret key, or token; it does not show in `repr`.
    :param host: of a registry.
    :param email: of a registry's user.
    :param endpoint: URL of an object store.
    :param region: of an object store.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    host: str = ""
    email: str = ""
    endpoint: str = ""
    region: str = ""


# By connection id.
Accounts = Mapping[str, Account]
NO_ACCOUNTS: Accounts = MappingProxyType({})


def name_secrets(spec: TrainingSpec, accounts: Accounts, *, name: str) -> TrainingSpec:
    """Return the spec with the names of Secrets in place of the connections they are made from.

    What a store's connection says about the endpoint and the region holds where the store itself
    says nothing.

    :raises InvalidSpecError: nobody names the endpoint of a store that needs one.
    """
    changes: dict[str, object] = {}
    for use, store, suffix in _stores(spec):
        account = accounts[store.conn_id or ""]
        endpoint = store.endpoint or account.endpoint or None
        if store.type == "mount_cos" and endpoint is None:
            raise InvalidSpecError(
                f"{use}.endpoint: is needed, for the connection {store.conn_id!r} has no "
                "endpoint_url in its extra"
            )
        changes[use] = store.model_copy(
            update={
                "conn_id": None,
                "secret": name + suffix,
                "endpoint": endpoint,
                "region": store.region or account.region or None,
            }
        )
    if spec.image_pull_conn_id is not None:
        changes |= {"image_pull_conn_id": None, "image_pull_secret": name + PULL_SECRET}
    return spec.model_copy(update=changes)


def build_secrets(
    spec: TrainingSpec,
    accounts: Accounts,
    *,
    name: str,
    config: LearnerConfig,
    labels: Mapping[str, str],
) -> list[V1Secret]:
    """Build the Secrets that are made from connections.

    :param spec: as the user wrote it, with connections.
    :param name: of the training.
    :param config: gives the namespace.
    :param labels: of every object of the training.
    :raises InvalidSpecError: a connection lacks what its Secret needs.
    """
    keys = {use: _build_keys(use, store, accounts, name + s) for use, store, s in _stores(spec)}
    secrets = create_volume_secrets_spec(
        Secrets(
            training_data_secret=keys.get("training_data"), results_dir_secret=keys.get("results")
        ),
        config=config,
    )
    if spec.image_pull_conn_id is not None:
        account = accounts[spec.image_pull_conn_id]
        _require(account, spec.image_pull_conn_id, "image_pull_conn_id", ("host", "password"))
        location = ImageLocation(
            registry=account.host, access_token=account.password, email=account.email
        )
        pull_secret = build_image_pull_secret(
            JobDeploymentRequest(name=name, training_id=name, image_location=location),
            location,
            config=config,
            name=name + PULL_SECRET,
            username=account.username or "token",
        )
        secrets.append(pull_secret)
    for secret in secrets:
        if secret.metadata is not None:
            secret.metadata.labels = dict(labels)
    return secrets


def _build_keys(use: str, store: Store, accounts: Accounts, secret: str) -> COSVolumeSecret:
    conn_id = store.conn_id or ""
    account = accounts[conn_id]
    _require(account, conn_id, f"{use}.conn_id", ("username", "password"))
    return COSVolumeSecret(id=secret, username=account.username, api_key=account.password)


# Fields of an account as they are called in a connection's form.
_FORM = {"username": "login", "password": "password", "host": "host"}


def _require(account: Account, conn_id: str, argument: str, needed: Sequence[str]) -> None:
    missing = [_FORM[name] for name in needed if not getattr(account, name)]
    if missing:
        raise InvalidSpecError(
            f"{argument}: the connection {conn_id!r} has no {' and no '.join(missing)}"
        )


def _stores(spec: TrainingSpec) -> list[tuple[str, Store, str]]:
    """The stores whose keys come from a connection: field, store, and the Secret's suffix."""
    stores = (
        ("training_data", spec.training_data, DATA_SECRET),
        ("results", spec.results, RESULTS_SECRET),
    )
    return [
        (use, store, suffix)
        for use, store, suffix in stores
        if store is not None and store.conn_id is not None
    ]
