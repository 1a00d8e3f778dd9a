"""Keys and tokens: they do what they are for, belong to their training, and stand nowhere else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_learner_provider.learner import (
    ImageLocation,
    JobDeploymentRequest,
    LearnerConfig,
    generate_image_pull_secret,
)
from airflow_learner_provider.training.accounts import Account
from dev.airflow.access import build_connection
from dev.airflow.rest import ENDED_TASK
from dev.cluster import containerd
from dev.services import S3, Registry, serve_registry
from tests.cluster.core import Core, meanwhile, until
from tests.cluster.proxy import Proxy, Request

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api

    from dev.airflow.access import Admin
    from tests.cluster.fixtures import AirflowUnderTest

DAGS = Path(__file__).parents[2] / "dags"
TOKEN = "t0ken-of-the-registry"
HTPASSWD = "token:$2b$05$abcdefghijklmnopqrstuuFLPmeJzWytQ5Cpus515D0FgRajlipzG"


@pytest.fixture(scope="module")
def registry(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with serve_registry(
        tmp_path_factory.mktemp("registry"), htpasswd=HTPASSWD, token=TOKEN
    ) as server:
        yield server


@pytest.fixture
def private_image(registry: Registry, tiny_image: str, namespace: str) -> Iterator[str]:
    """An image that only the registry's user may pull, and that the node has not pulled yet."""
    image = registry.push(tiny_image, f"ml/tiny:{namespace}")
    yield image
    containerd.ctr("images", "rm", image)


async def test_a_private_image_is_pulled_with_the_connections_token(
    core: Core, registry: Registry, private_image: str
) -> None:
    core.accounts = {
        "wrong": Account("token", "wrong", host=registry.host),
        "registry": Account("", TOKEN, host=registry.host),
    }
    denied = await asyncio.gather(
        core.run(learners=1, command="true", image=private_image),
        core.run(
            learners=1,
            command="true",
            image=private_image,
            image_pull_conn_id="wrong",
        ),
    )
    assert [outcome["reason"] for outcome in denied] == ["ImageDenied", "ImageDenied"]
    assert TOKEN not in core.log.text
    outcome = await core.run(
        command="echo pulled",
        image=private_image,
        image_pull_conn_id="registry",
    )
    assert outcome["phase"] == "Succeeded"
    assert "[1] pulled" in core.log.lines


async def test_an_error_of_the_registry_that_passes_changes_no_verdict(
    core: Core, registry: Registry, private_image: str
) -> None:
    refused: list[str] = []

    def before(request: Request) -> int | None:
        if "ImageUnavailable" in core.log.text:
            return None
        refused.append(request.path)
        return 503

    with Proxy({"clusters": [{"cluster": {"server": f"http://{registry.host}"}}]}) as proxy:
        proxy.before = before
        host = proxy.address
        image = private_image.replace(registry.host, host)
        core.accounts = {"registry": Account("", TOKEN, host=host)}
        try:
            outcome = await core.run(command="true", image=image, image_pull_conn_id="registry")
        finally:
            containerd.ctr("images", "rm", image)
    assert outcome["phase"] == "Succeeded"
    assert len(refused) >= 2
    assert "503" in core.log.text


async def test_the_seeds_pull_secret_pulls(
    core: Core, core_api: CoreV1Api, registry: Registry, private_image: str
) -> None:
    location = ImageLocation(registry=registry.host, access_token=TOKEN, email="a@example.com")
    secret = await asyncio.to_thread(
        generate_image_pull_secret,
        core_api,
        JobDeploymentRequest(name="job", training_id="t", image_location=location),
        config=LearnerConfig(learner_namespace=core.namespace),
    )
    outcome = await core.run(
        learners=1, command="true", image=private_image, image_pull_secret=secret
    )
    assert outcome["phase"] == "Succeeded"


async def test_secrets_belong_to_their_training_and_their_values_stand_nowhere_else(
    core: Core, admin: Admin, staging_image: str, wait_until_empty: Callable[[], None]
) -> None:
    planted = {"planted-key-1": "s3", "planted-token-2": "registry"}
    core.accounts = {
        conn_id: Account("user", value, host="registry.test") for value, conn_id in planted.items()
    }
    store = {"type": "s3_datastore", "bucket": "b", "endpoint": "http://s3.test", "conn_id": "s3"}
    request = core.request(
        command="sleep 60",
        name="owned",
        training_data=store,
        results=store,
        image_pull_conn_id="registry",
        staging_image=staging_image,
    )

    def list_secrets() -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{core.namespace}/secrets"
        items: list[dict[str, Any]] = admin.request("GET", path)["items"]
        return items

    def list_pods() -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/{core.namespace}/pods"
        items: list[dict[str, Any]] = admin.request("GET", path)["items"]
        return items

    async with meanwhile(core.run(request)) as task:
        pods = await until(list_pods)
        secrets = await asyncio.to_thread(list_secrets)
        assert [secret["metadata"]["name"] for secret in secrets] == [
            "owned-data",
            "owned-pull",
            "owned-results",
        ]
        for secret in secrets:
            (owner,) = secret["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("StatefulSet", "owned")
        path = f"/apis/apps/v1/namespaces/{core.namespace}/statefulsets"
        stateful_sets = await asyncio.to_thread(admin.request, "GET", path)
        outcome = await task  # there is no such store
    assert outcome["phase"] == "Failed"
    for text in (json.dumps([pods, stateful_sets, outcome, request.to_json()]), core.log.text):
        for value in planted:
            assert value not in text
    await asyncio.to_thread(wait_until_empty)


@pytest.mark.usefixtures("staging_image", "digits_image")
def test_a_connections_keys_reach_the_cluster_and_nothing_that_airflow_stores(
    airflow: AirflowUnderTest, s3: S3, wait_until_empty: Callable[[], None]
) -> None:
    """The example prepares the data from a worker and trains from the triggerer."""
    bucket = s3.buckets / "datasets"
    bucket.mkdir()
    airflow.api.set_connection(
        {
            "connection_id": "learner_s3",
            "conn_type": "aws",
            "login": s3.access_key,
            "password": s3.secret_key,
            "extra": json.dumps({"endpoint_url": s3.url}),
        }
    )
    run = airflow.trigger(airflow.copy_dag_file(DAGS / "train_from_s3.py"))
    run.wait_for("success")
    assert (bucket / "digits/data/digits.npz").exists()
    outcome = run.task("train").read_xcom()
    assert outcome["result"]["accuracy"] > 0.8
    assert (bucket / "digits/runs" / outcome["name"] / "model.npz").exists()
    log = "\n".join(run.task("train").read_log())
    for ordinal in (0, 1):
        assert f"[{ordinal} download] copying 1 files of" in log
        assert f"[{ordinal} upload] copying /mnt/results to s3://datasets/digits/runs" in log
    # Its database and its logs.
    stored = [path for path in airflow.server.home.rglob("*") if path.is_file()]
    assert stored
    assert [str(path) for path in stored if s3.secret_key.encode() in path.read_bytes()] == []
    wait_until_empty()


def test_what_a_task_may_read_is_neither_logged_nor_stored(
    airflow: AirflowUnderTest, admin: Admin, kubectl: Callable[..., str], namespace: str
) -> None:
    """A token in the connection, a value in a Secret, and a connection that cannot be used."""
    kubeconfig: dict[str, Any] = admin.create_role_kubeconfig(namespace)
    token = kubeconfig["users"][0]["user"]["token"]
    airflow.api.set_connection(build_connection("planted", kubeconfig))
    airflow.api.set_connection(build_connection("no_context", {**kubeconfig, "contexts": []}))
    airflow.api.set_connection(
        {
            "connection_id": "no_json",
            "conn_type": "kubernetes",
            "extra": json.dumps({"kube_config": f"users: {token}"}),
        }
    )
    value = "planted-value-in-a-secret"
    kubectl("create", "secret", "generic", "s", "-n", namespace, f"--from-literal=key={value}")
    run = airflow.run("""
KEY = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}
POD = {"spec": {"containers": [{"name": "learner", "env": [KEY]}]}}
COMMAND = "sleep 2; [ -n \\"$KEY\\" ] && exit 3"

with DAG(DAG_ID, schedule=None):
    for conn_id in ("planted", "no_context", "no_json"):
        for deferrable in (True, False):
            LearnerStatefulSetOperator(
                task_id=f"{conn_id}_{deferrable}",
                learners=1,
                image=TINY_IMAGE,
                command=COMMAND,
                cpus="20m",
                memory="64Mi",
                pod_template=POD,
                namespace=NAMESPACE,
                kubernetes_conn_id=conn_id,
                deferrable=deferrable,
            )
""")
    task = run.task("planted_False")
    seen: list[str] = []
    while task.read_state() not in ENDED_TASK:
        seen.append(kubectl("get", "statefulsets,pods", "-n", namespace, "-o", "yaml"))
    assert any("secretKeyRef" in text for text in seen)
    run.wait_for("failed")
    for deferrable in (True, False):
        assert "ended with exit code 3" in "\n".join(run.task(f"planted_{deferrable}").read_log())
        for conn_id in ("no_context", "no_json"):
            said = "\n".join(run.task(f"{conn_id}_{deferrable}").read_log())
            assert (
                "no credentials for the Kubernetes API (ClusterSettings(inline kubeconfig" in said
            )
    stored = [path for path in airflow.server.home.rglob("*") if path.is_file()]
    for planted in (token, value):
        assert [path for path in stored if planted.encode() in path.read_bytes()] == []
        assert not any(planted in text for text in seen)
