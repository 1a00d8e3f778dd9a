"""What is built is what the API server takes: dry runs with strict field validation."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubernetes.client import ApiException

from airflow_learner_provider.__main__ import main
from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.accounts import Account
from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.objects import build_objects
from airflow_learner_provider.training.spec import parse_training_spec
from tests.unit.learner.vectors import BUILDERS, VECTORS, build

if TYPE_CHECKING:
    from collections.abc import Callable

    from dev.airflow.access import Admin

Json = dict[str, Any]

DAGS = Path(__file__).parents[2] / "dags"
PATHS = {
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Service": "/api/v1/namespaces/{}/services",
    "Secret": "/api/v1/namespaces/{}/secrets",
}
LABELS = {"training_id": "t"}
OWNER = Owner("digits", "train", "manual__2026-01-01T00:00:00+00:00", -1, 1, "id", durable=True)
HOST = {"type": "host_mount", "host_path": "/data"}
COS = {"type": "mount_cos", "bucket": "b", "endpoint": "e", "secret": "s"}
S3 = {"type": "s3_datastore", "bucket": "b", "sub_path": "in", "conn_id": "s3"}
ACCOUNTS = {"s3": Account("key", "secret"), "registry": Account("", "token", host="registry.test")}


def dry_run(admin: Admin, namespace: str, manifest: Json) -> set[str]:
    """Ask the API server; return the fields whose values it refuses.

    A field that it does not know is an error of another kind, and raised.
    """
    manifest = copy.deepcopy(manifest)
    manifest["metadata"]["namespace"] = namespace
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    path = PATHS[manifest["kind"]].format(namespace)
    try:
        admin.request("POST", path, body=manifest, query=query)
    except ApiException as e:
        if e.status != 422:
            raise
        causes = json.loads(e.body or "")["details"]["causes"]
        # Without the places in lists: names that were there twice are not in ours.
        return {re.sub(r"\[\d+\]", "[]", cause["field"]) for cause in causes}
    return set()


def wrap(built: Json | None = None, **spec: Any) -> Json:
    """A StatefulSet around a pod template, or around what belongs into one."""
    template = built or {"spec": {"containers": [{"name": "learner", "image": "x"}]}}
    template = copy.deepcopy(template)
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = (metadata.get("labels") or {}) | LABELS
    template["spec"] |= spec
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "t"},
        "spec": {"serviceName": "t", "selector": {"matchLabels": LABELS}, "template": template},
    }


def wrap_container(container: Json) -> Json:
    names = {mount["name"] for mount in container.get("volumeMounts") or ()}
    volumes = [{"name": name, "emptyDir": {}} for name in sorted(names)]
    return wrap(containers=[container | {"name": container["name"] or "t"}], volumes=volumes)


def wrap_env(env: list[Json]) -> Json:
    return wrap(containers=[{"name": "learner", "image": "x", "env": env}])


WRAPPERS: dict[str, Callable[[Any], list[Json]]] = {
    "create_container_spec": lambda built: [wrap_container(built)],
    "create_pod_spec": lambda built: [wrap(built)],
    "create_service_spec": lambda built: [{"apiVersion": "v1", "kind": "Service"} | built],
    "create_stateful_set_spec_for_learner": lambda built: [built],
    "create_volume_for_learner": lambda built: [wrap(volumes=built)],
    "create_volume_secrets_spec": lambda built: [
        {"apiVersion": "v1", "kind": "Secret"} | secret for secret in built
    ],
    "populate_learner_env_variables_and_labels": lambda built: [wrap_env(built)],
}


@pytest.mark.parametrize("function", sorted(WRAPPERS.keys() & BUILDERS.keys()))
def test_the_api_server_takes_what_the_seeds_builders_build(
    admin: Admin, namespace: str, function: str
) -> None:
    """Values that came in wrong, such as a name with blanks, are refused in the original's too."""
    taken = 0
    for vector in VECTORS:
        if vector["function"] != function or not vector["output"]:
            continue
        try:
            built = build(vector)
        except InvalidSpecError:
            continue  # refused before any request, which the golden tests check
        originals = WRAPPERS[function](vector["output"])
        for manifest, original in zip(WRAPPERS[function](built), originals, strict=True):
            refused = dry_run(admin, namespace, manifest)
            if refused:
                assert refused <= dry_run(admin, namespace, original), vector["case"]
            else:
                taken += 1
    assert taken >= 2


@pytest.mark.parametrize("native", [True, False], ids=["native", "wrapper"])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"image": "a/b:1"}, id="image"),
        pytest.param({"framework": "tensorflow", "framework_version": "1.5"}, id="framework"),
        pytest.param({"image": "a", "launcher": "jax", "gpus": 2, "name": "n" * 52}, id="jax"),
        pytest.param(
            {"image": "a", "training_data": HOST, "results": HOST | {"sub_path": "r"}},
            id="host mounts",
        ),
        pytest.param({"image": "a", "results": {"type": "mount_volume", "claim": "c"}}, id="claim"),
        pytest.param(
            {
                "image": "a",
                "training_data": COS,
            },
            id="object store",
        ),
        pytest.param(
            {"image": "a", "training_data": COS | {"csi_driver": "s3.csi.test"}}, id="csi"
        ),
        pytest.param(
            {"image": "a", "training_data": S3, "results": S3, "image_pull_conn_id": "registry"},
            id="staged",
        ),
        pytest.param(
            {
                "image": "a",
                "min_ready_seconds": 5,
                "pod_management_policy": "OrderedReady",
                "image_pull_secret": "regcred",
                "node_selector": {"disk": "ssd"},
                "pod_template": {
                    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
                    "spec": {"priority_class_name": "high", "schedulerName": "volcano"},
                },
            },
            id="more",
        ),
    ],
)
def test_the_api_server_takes_a_whole_training(
    admin: Admin, namespace: str, more: Json, native: bool
) -> None:
    values = {"learners": 2, "command": "echo $(date) $$", "env": {"LR": 0.1}} | more
    spec = parse_training_spec(values)
    objects = build_objects(
        spec, OWNER, namespace=namespace, version="1", native=native, accounts=ACCOUNTS
    )
    for manifest in (objects.stateful_set, *objects.owned):
        assert dry_run(admin, namespace, manifest) == set()


def test_kubectl_takes_what_is_rendered_from_the_examples(
    kubectl: Callable[..., str],
    namespace: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = {"conn_type": "kubernetes", "extra": {"namespace": namespace}}
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(connection))
    for example in ("train_from_form", "train_from_s3", "train_mpi"):
        assert main(["render", str(DAGS / f"{example}.py"), "train"]) == 0
        manifests = capsys.readouterr().out
        dry_run = ("apply", "--dry-run=server", "--validate=strict", "--output=name")
        taken = kubectl(*dry_run, "--filename=-", stdin=manifests).split()
        kinds = [manifest["kind"] for manifest in yaml.safe_load_all(manifests)]
        assert [name.split("/")[0].split(".")[0] for name in taken] == [k.lower() for k in kinds]
