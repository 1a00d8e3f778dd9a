"""From settings to what a connection to the API server needs.

Loading uses the official client's loaders, so that every kind of kubeconfig works: certificates,
tokens, exec plugins, the pod's own service account.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_learner_provider.exceptions import LearnerError

# https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class ClusterSettings:
    """Which cluster, and by which credentials; hashable, so that equal ones share a connection.

    At most one of `in_cluster`, `kube_config_path` and `kube_config` is given; with none of them
    the pod's own service account is used, else the default kubeconfig.

    :param in_cluster: use the pod's own service account.
    :param kube_config_path: path of a kubeconfig file.
    :param kube_config: a kubeconfig as JSON text.
    :param context: context in the kubeconfig; None is its current one.
    :param namespace: where objects go that name none; None asks the context, then the pod.
    :param verify_ssl: whether the API server's certificate is checked.
    """

    in_cluster: bool = False
    kube_config_path: str | None = None
    kube_config: str | None = None
    context: str | None = None
    namespace: str | None = None
    verify_ssl: bool = True

    def __repr__(self) -> str:
        """Name the source, never its content: a kubeconfig holds keys."""
        source = self.kube_config_path or ("in cluster" if self.in_cluster else "default")
        return f"ClusterSettings({'inline kubeconfig' if self.kube_config else source})"


@dataclass(frozen=True)
class Credentials:
    """Loaded credentials.

    :param authorization: value of the Authorization header; None with a client certificate.
    :param namespace: where objects go that name none.
    """

    host: str
    tls: ssl.SSLContext | bool
    authorization: str | None
    server_hostname: str | None
    proxy: str | None
    namespace: str


async def load_credentials(settings: ClusterSettings) -> Credentials:
    """Load credentials, in a thread: this imports the client, reads files and may run a plugin.

    :raises LearnerError: there are none, or they cannot be read.
    """
    return await asyncio.to_thread(_load, settings)


def _load(settings: ClusterSettings) -> Credentials:
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException

    configuration: Any = Configuration()
    try:
        namespace = _load_into(configuration, settings)
    except (ConfigException, OSError, ValueError) as e:
        raise LearnerError(f"no credentials for the Kubernetes API ({settings!r}): {e}") from e
    return Credentials(
        host=configuration.host.rstrip("/"),
        tls=_build_tls(configuration, verify=settings.verify_ssl and configuration.verify_ssl),
        authorization=configuration.auth_settings().get("BearerToken", {}).get("value"),
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy,
        namespace=settings.namespace or namespace or "default",
    )


def _load_into(configuration: Any, settings: ClusterSettings) -> str | None:
    from kubernetes import config

    if settings.in_cluster:
        config.load_incluster_config(client_configuration=configuration)
        return _read_own_namespace()
    if settings.kube_config is not None:
        content = json.loads(settings.kube_config)
        config.load_kube_config_from_dict(
            content, context=settings.context, client_configuration=configuration
        )
        return _context_namespace(content, settings.context)
    if settings.kube_config_path is None:
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            pass  # not in a pod: the default kubeconfig is meant
        else:
            return _read_own_namespace()
    path = settings.kube_config_path
    config.load_kube_config(
        config_file=path, context=settings.context, client_configuration=configuration
    )
    contexts, current = config.list_kube_config_contexts(config_file=path)
    named = {context["name"]: context for context in contexts}
    chosen = named.get(settings.context or "", current)
    namespace: str | None = chosen["context"].get("namespace")
    return namespace


def _context_namespace(content: dict[str, Any], context: str | None) -> str | None:
    name = context or content.get("current-context")
    for entry in content.get("contexts", ()):
        if entry.get("name") == name:
            namespace: str | None = entry.get("context", {}).get("namespace")
            return namespace
    return None


def _read_own_namespace() -> str | None:
    try:
        return _OWN_NAMESPACE.read_text().strip()
    except OSError:
        return None


def _build_tls(configuration: Any, *, verify: bool) -> ssl.SSLContext | bool:
    if not configuration.host.startswith("https"):
        return False
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
