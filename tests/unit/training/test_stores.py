"""Stores and Secrets: what is accepted, and what is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.accounts import Account
from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.objects import TrainingObjects, build_objects
from airflow_learner_provider.training.spec import parse_training_spec

ACCOUNTS = {
    "my_s3": Account("AKIA1", "secret-1", endpoint="http://s3.test:9000", region="eu-de"),
    "keyless": Account(),
    "my_registry": Account("robot", "token-1", host="registry.test:5000", email="a@b.test"),
}
S3 = {"type": "s3_datastore", "bucket": "data", "conn_id": "my_s3"}
COS = {"type": "mount_cos", "bucket": "data", "conn_id": "my_s3"}


def build(**more: Any) -> TrainingObjects:
    spec = parse_training_spec({"learners": 2, "command": "true", "image": "i", "name": "t"} | more)
    owner = Owner("dag", "task", "run", -1, 1, "1", durable=True)
    return build_objects(spec, owner, namespace="ml", version="1", native=True, accounts=ACCOUNTS)


def pod_of(objects: TrainingObjects) -> dict[str, Any]:
    pod: dict[str, Any] = objects.stateful_set["spec"]["template"]["spec"]
    return pod


def secrets_of(objects: TrainingObjects) -> dict[str, dict[str, Any]]:
    secrets = [manifest for manifest in objects.owned if manifest["kind"] == "Secret"]
    return {secret["metadata"]["name"]: secret for secret in secrets}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"training_data": {"type": "s3_datastore", "conn_id": "c"}}, "bucket is needed"),
        ({"training_data": S3 | {"secret": "s"}}, "give either secret or conn_id"),
        ({"training_data": {"type": "s3_datastore", "bucket": "b"}}, "give either secret or"),
        ({"training_data": S3 | {"cache_size": 1}}, "cache_size has no meaning for a store of"),
        ({"training_data": S3 | {"bucket": "data/digits"}}, "a path in it is given as sub_path"),
        ({"training_data": S3 | {"sub_path": "../x"}}, "a relative path without '..'"),
        ({"training_data": S3 | {"disk_free": "1Gi"}}, "a whole number of MB"),
        (
            {"training_data": {"type": "mount_cos", "bucket": "b", "secret": "s"}},
            "endpoint is needed by a store of type mount_cos",
        ),
        (
            {"training_data": S3, "results": S3 | {"mount_path": "/mnt/data/"}},
            "each have a mount_path of their own",
        ),
        ({"results": S3 | {"mount_path": "/job"}}, "other than /job"),
        (
            {"results": S3, "command": ["true"], "holder_image": "busybox"},
            "give it as one text",
        ),
        (
            {"image_pull_secret": "a", "image_pull_conn_id": "b"},
            "give either image_pull_secret or image_pull_conn_id",
        ),
        (
            {"training_data": S3 | {"conn_id": "keyless"}},
            "training_data.conn_id: the connection 'keyless' has no login and no password",
        ),
        (
            {"results": COS | {"conn_id": "keyless"}},
            "results.conn_id: the connection 'keyless' has no login and no password",
        ),
        (
            {"image_pull_conn_id": "keyless"},
            "image_pull_conn_id: the connection 'keyless' has no host and no password",
        ),
        (
            {"training_data": COS | {"conn_id": "my_registry"}},
            "training_data.endpoint: is needed, for the connection 'my_registry' has no endpoint",
        ),
    ],
)
def test_a_store_that_cannot_work_is_refused_by_name(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        build(**arguments)
    assert words in str(refused.value)


def test_secrets_are_made_from_connections_and_belong_to_the_training() -> None:
    objects = build(training_data=S3, results=COS, image_pull_conn_id="my_registry")
    secrets = secrets_of(objects)
    assert list(secrets) == ["t-data", "t-results", "t-pull"]
    keys = {"access-key": "AKIA1", "secret-key": "secret-1"}
    labels = objects.stateful_set["metadata"]["labels"]
    assert secrets["t-results"] == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "t-results", "namespace": "ml", "labels": labels},
        "type": "ibm/ibmc-s3fs",
        "stringData": keys,
    } | {"metadata": secrets["t-results"]["metadata"]}
    assert secrets["t-data"]["stringData"] == keys
    assert secrets["t-pull"]["type"] == "kubernetes.io/dockercfg"
    assert pod_of(objects)["imagePullSecrets"] == [{"name": "t-pull"}]
    assert all(
        secret["metadata"]["labels"].items() >= {"training_id": "t"}.items()
        for secret in secrets.values()
    )


def test_no_key_stands_in_the_stateful_set() -> None:
    objects = build(training_data=S3, results=COS, image_pull_conn_id="my_registry")
    text = json.dumps(objects.stateful_set)
    assert "AKIA1" not in text
    assert "secret-1" not in text
    assert "token-1" not in text
    assert "secret-1" not in repr(ACCOUNTS)


def test_a_secret_that_is_there_is_named_and_none_is_made() -> None:
    store = {"type": "s3_datastore", "bucket": "data", "secret": "mine"}
    objects = build(training_data=store, image_pull_secret="pull")
    assert secrets_of(objects) == {}
    download = pod_of(objects)["initContainers"][0]
    references = [env["valueFrom"]["secretKeyRef"] for env in download["env"] if "valueFrom" in env]
    assert references == [
        {"name": "mine", "key": "access-key"},
        {"name": "mine", "key": "secret-key"},
    ]


def test_only_staging_containers_see_the_keys_of_a_bucket_that_is_copied() -> None:
    pod = pod_of(build(training_data=S3 | {"sub_path": "digits"}, results=S3))
    seeing = {
        container["name"]
        for container in pod["containers"] + pod["initContainers"]
        if any("secretKeyRef" in env.get("valueFrom", {}) for env in container.get("env", ()))
    }
    assert seeing == {"download", "upload"}


def test_a_bucket_that_is_mounted_by_csi_has_the_same_options() -> None:
    flex = pod_of(build(training_data=COS))["volumes"][0]["flexVolume"]
    csi = pod_of(build(training_data=COS | {"csi_driver": "s3.csi.test"}))["volumes"][0]["csi"]
    assert csi == {
        "driver": "s3.csi.test",
        "nodePublishSecretRef": flex["secretRef"],
        "volumeAttributes": flex["options"],
    }
    assert flex["options"]["endpoint"] == "http://s3.test:9000"
    assert flex["options"]["region"] == "eu-de"


def test_what_a_store_says_comes_before_what_its_connection_says() -> None:
    own = {"endpoint": "http://own.test", "region": "us-south", "sub_path": "a", "disk_free": 5}
    pod = pod_of(build(training_data=S3 | own, results=S3))
    described = {
        container["name"]: {env["name"]: env["value"] for env in container["env"] if "value" in env}
        for container in (pod["initContainers"][0], pod["containers"][1])
    }
    results = {
        "RESULTS_URL": "s3://data",
        "RESULTS_REMOTE": "results:data",
        "RESULTS_FOLDER": "/mnt/results",
        "RCLONE_CONFIG_RESULTS_TYPE": "s3",
        "RCLONE_CONFIG_RESULTS_PROVIDER": "Other",
        "RCLONE_CONFIG_RESULTS_ENDPOINT": "http://s3.test:9000",
        "RCLONE_CONFIG_RESULTS_REGION": "eu-de",
        "RCLONE_CONFIG_RESULTS_NO_CHECK_BUCKET": "true",
    }
    assert described["upload"] == results
    checkpoints = described["download"].pop("CHECKPOINTS")
    assert checkpoints.startswith("_wml_checkpoints/")
    assert described["download"] == results | {
        "DATA_URL": "s3://data/a",
        "DATA_REMOTE": "data:data/a",
        "DATA_FOLDER": "/mnt/data",
        "DATA_DISK_FREE": "5",
        "RCLONE_CONFIG_DATA_TYPE": "s3",
        "RCLONE_CONFIG_DATA_PROVIDER": "Other",
        "RCLONE_CONFIG_DATA_ENDPOINT": "http://own.test",
        "RCLONE_CONFIG_DATA_REGION": "us-south",
        "RCLONE_CONFIG_DATA_NO_CHECK_BUCKET": "true",
    }
