"""From Airflow connections to a cluster's settings, and to accounts at stores and registries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_learner_provider.cluster.credentials import ClusterSettings
    from airflow_learner_provider.training.accounts import Account

DEFAULT_CONN_ID = "kubernetes_default"
_TEST_SECONDS = 15
_EXCLUSIVE = ("in_cluster", "kube_config_path", "kube_config")


class LearnerHook(BaseHook):
    """Reads a `kubernetes` connection, as the cncf.kubernetes provider defines it.

    The default connection need not exist: then the pod's own service account is used, else the
    default kubeconfig.

    :param kubernetes_conn_id: id of the connection.
    """

    conn_type = "kubernetes"
    hook_name = "Kubernetes learners"

    def __init__(self, kubernetes_conn_id: str = DEFAULT_CONN_ID) -> None:
        super().__init__()
        self.kubernetes_conn_id = kubernetes_conn_id

    def get_conn(self) -> ClusterSettings:
        """Read the connection in a worker."""
        try:
            return parse_extra(self.get_connection(self.kubernetes_conn_id).extra_dejson)
        except AirflowNotFoundException:
            return self._without_connection()

    async def aget_conn(self) -> ClusterSettings:
        """Read the connection in a triggerer, without blocking its event loop."""
        try:
            connection = await self.aget_connection(self.kubernetes_conn_id)
        except AirflowNotFoundException:
            return self._without_connection()
        return parse_extra(connection.extra_dejson)

    def test_connection(self) -> tuple[bool, str]:
        """Ask the cluster whether the connection's account may run trainings.

        Airflow's own *Test* asks the hook of the cncf.kubernetes provider, to which the type
        belongs: whether the API server answers, not what it allows.
        """
        try:
            return True, asyncio.run(self._test())
        except Exception as e:  # noqa: BLE001 - whatever it is, it is the answer
            return False, str(e)

    async def _test(self) -> str:
        from airflow_learner_provider.cluster.connection import connect
        from airflow_learner_provider.cluster.rights import check_rights

        async with connect(self.get_conn()) as connection:
            credentials = await connection.api.credentials()
            try:
                async with asyncio.timeout(_TEST_SECONDS):
                    await connection.api.list("StatefulSet", credentials.namespace)
                    await check_rights(connection.api, credentials.namespace, ("Service", "Secret"))
            except TimeoutError as e:
                raise TimeoutError(
                    f"no answer from {credentials.host} within {_TEST_SECONDS} s"
                ) from e
        return f"{credentials.host}: trainings may be run in namespace {credentials.namespace}"

    def _without_connection(self) -> ClusterSettings:
        if self.kubernetes_conn_id != DEFAULT_CONN_ID:
            raise AirflowNotFoundException(
                f"kubernetes_conn_id: there is no connection {self.kubernetes_conn_id!r}"
            )
        return parse_extra({})


def read_accounts(conn_ids: Iterable[str]) -> dict[str, Account]:
    """Read connections in a worker.

    :raises AirflowNotFoundException: there is no connection of that id.
    """
    return {conn_id: parse_account(BaseHook.get_connection(conn_id)) for conn_id in conn_ids}


async def aread_accounts(conn_ids: Iterable[str]) -> dict[str, Account]:
    """Read connections in a triggerer, without blocking its event loop."""
    return {conn_id: parse_account(await BaseHook.aget_connection(conn_id)) for conn_id in conn_ids}


def parse_account(connection: Connection) -> Account:
    """Read an account from a connection of type `aws` (any S3) or `docker` (any registry)."""
    from airflow_learner_provider.training.accounts import Account

    extra = connection.extra_dejson
    host = (connection.host or "").rstrip("/")
    return Account(
        username=connection.login or "",
        password=connection.password or "",
        host=f"{host}:{connection.port}" if host and connection.port else host,
        email=extra.get("email") or "",
        endpoint=extra.get("endpoint_url") or "",
        region=extra.get("region_name") or "",
    )


def parse_extra(extra: dict[str, Any]) -> ClusterSettings:
    """Read the fields of a `kubernetes` connection, with or without their old long prefix.

    :raises ValueError: more than one source of credentials is given; it names them.
    """
    from airflow_learner_provider.cluster.credentials import ClusterSettings

    fields = {key.removeprefix("extra__kubernetes__"): value for key, value in extra.items()}
    given = [field for field in _EXCLUSIVE if fields.get(field)]
    if len(given) > 1:
        raise ValueError(f"the connection gives {' and '.join(given)}; only one of them may be set")
    kube_config = fields.get("kube_config") or None
    if isinstance(kube_config, dict):
        kube_config = json.dumps(kube_config, sort_keys=True)
    return ClusterSettings(
        in_cluster=bool(fields.get("in_cluster")),
        kube_config_path=fields.get("kube_config_path") or None,
        kube_config=kube_config,
        context=fields.get("cluster_context") or None,
        namespace=fields.get("namespace") or None,
        verify_ssl=not fields.get("disable_verify_ssl"),
    )
