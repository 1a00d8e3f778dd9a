"""What Airflow gets of a cluster: a namespace, the Role that the provider ships, a token for it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes import config
from kubernetes.client import ApiException

Json = dict[str, Any]

RBAC = Path(__file__).parents[2] / "deploy" / "rbac.yaml"
SERVICE_ACCOUNT = "airflow-learner"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
}
# What a namespace has by itself, and what `prepare_namespace` puts there.
_ALWAYS_THERE = {
    ("ConfigMap", "kube-root-ca.crt"),
    ("Role", SERVICE_ACCOUNT),
    ("RoleBinding", SERVICE_ACCOUNT),
    ("ServiceAccount", "default"),
    ("ServiceAccount", SERVICE_ACCOUNT),
}


class Admin:
    """All rights in a cluster, to prepare it for Airflow and to look at what it did.

    :param kubeconfig: of somebody who may do anything.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.client: Any = config.new_client_from_config(config_file=str(kubeconfig))

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        self.client.rest_client.pool_manager.clear()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send a request, also for kinds that the client does not know."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        answer: Json = self.client.call_api(
            path,
            method,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            response_types_map={200: "object", 201: "object", 202: "object"},
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
            _request_timeout=120,
        )
        return answer

    def apply(self, manifest: Json, *, namespace: str = "") -> None:
        """Make an object what the manifest says, whether it is there or not."""
        path = _PATHS[manifest["kind"]].format(namespace=namespace)
        self.request(
            "PATCH",
            f"{path}/{manifest['metadata']['name']}",
            body=manifest,
            query={"fieldManager": "airflow-learner-provider", "force": "true"},
            content_type="application/apply-patch+yaml",
        )

    def prepare_namespace(self, namespace: str, *, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace in which Airflow has the rights of `deploy/rbac.yaml`, and no others."""
        metadata = {"name": namespace, "labels": dict(labels or {})}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        for manifest in yaml.safe_load_all(RBAC.read_text()):
            for subject in manifest.get("subjects", []):
                subject["namespace"] = namespace
            self.apply(manifest, namespace=namespace)

    def list_namespaces(self, label: str) -> dict[str, str]:
        """Return the value of a label by the names of the namespaces that have it."""
        found = self.request("GET", _PATHS["Namespace"], query={"labelSelector": label})["items"]
        return {item["metadata"]["name"]: item["metadata"]["labels"][label] for item in found}

    def delete_namespace(self, namespace: str) -> None:
        """Begin to delete a namespace with all that is in it."""
        self.request("DELETE", f"/api/v1/namespaces/{namespace}")

    def create_role_kubeconfig(self, namespace: str, *, hours: int = 4) -> Json:
        """Return a kubeconfig of Airflow's account in a prepared namespace, with a new token."""
        path = f"{_PATHS['ServiceAccount']}/{SERVICE_ACCOUNT}/token".format(namespace=namespace)
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": hours * 3600},
        }
        token = self.request("POST", path, body=body)["status"]["token"]
        configuration = self.client.configuration
        cluster: Json = {"server": configuration.host}
        if configuration.ssl_ca_cert:
            authority = Path(configuration.ssl_ca_cert).read_bytes()
            cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
        if not configuration.verify_ssl:
            cluster["insecure-skip-tls-verify"] = True
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "airflow", "user": {"token": token}}],
            "contexts": [
                {
                    "name": "airflow",
                    "context": {"cluster": "cluster", "user": "airflow", "namespace": namespace},
                }
            ],
            "current-context": "airflow",
        }

    def list_leftovers(self, namespace: str) -> list[str]:
        """List all objects of every kind in a namespace, as `Kind/name`.

        What every namespace has and what `prepare_namespace` made is left out, and so are events:
        they outlive what they tell of.
        """
        found: list[str] = []
        for kind, path in self._list_kinds():
            for item in self._list(f"{path[0]}/namespaces/{namespace}/{path[1]}"):
                name = item["metadata"]["name"]
                if (kind, name) not in _ALWAYS_THERE:
                    found.append(f"{kind}/{name}")
        return sorted(found)

    def _list(self, path: str) -> list[Json]:
        try:
            return list(self.request("GET", path)["items"])
        except ApiException as e:
            if e.status in {404, 405}:  # a kind that went, or that cannot be listed after all
                return []
            raise

    def _list_kinds(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Ask the API server for every kind that lives in a namespace and can be listed."""
        groups = self.request("GET", "/apis")["groups"]
        versions = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
        for version in ["/api/v1", *versions]:
            for resource in self.request("GET", version)["resources"]:
                if not resource["namespaced"] or "list" not in resource["verbs"]:
                    continue
                if resource["kind"] != "Event":
                    yield resource["kind"], (version, resource["name"])


def build_connection(connection_id: str, kubeconfig: Json) -> Json:
    """Build an Airflow connection with an inline kubeconfig, as a person would fill in its form."""
    extra = {"kube_config": json.dumps(kubeconfig)}
    return {
        "connection_id": connection_id,
        "conn_type": "kubernetes",
        "extra": json.dumps(extra),
    }
