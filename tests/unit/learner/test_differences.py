"""What ours does otherwise than the original on purpose, each difference in ``docs/seed.md``."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kubernetes.client import (
    V1Container,
    V1EnvVar,
    V1EnvVarSource,
    V1ObjectMeta,
    V1PodSpec,
    V1PodTemplateSpec,
    V1SecretKeySelector,
    V1ServicePort,
)

from airflow_learner_provider import learner
from airflow_learner_provider.exceptions import InvalidSpecError
from tests.unit.learner.vectors import GOLDEN, as_json


def template(**labels: str) -> V1PodTemplateSpec:
    return V1PodTemplateSpec(
        metadata=V1ObjectMeta(labels=labels),
        spec=V1PodSpec(containers=[V1Container(name="learner", image="train:1")]),
    )


def environment(*env_vars: V1EnvVar, training_id: str = "t-1", mounted: bool = False) -> Any:
    return as_json(
        learner.populate_learner_env_variables_and_labels(
            env_vars, training_id, 2, "learner", mounted, mounted
        )
    )


def store(volume_type: str, **fields: Any) -> learner.COSVolume:
    return learner.COSVolume(volume_type=volume_type, id="data", **fields)


# 1


def test_the_stateful_set_is_apps_v1_and_selects_its_training_in_parallel() -> None:
    built = learner.create_stateful_set_spec_for_learner(
        "learner", "service", 2, template(training_id="t-1", service="dlaas-learner")
    )
    assert as_json(built) == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "learner",
            "labels": {"training_id": "t-1", "service": "dlaas-learner"},
        },
        "spec": {
            "podManagementPolicy": "Parallel",
            "replicas": 2,
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": {"training_id": "t-1"}},
            "serviceName": "service",
            "template": {
                "metadata": {"labels": {"training_id": "t-1", "service": "dlaas-learner"}},
                "spec": {"containers": [{"name": "learner", "image": "train:1"}]},
            },
        },
    }


def test_a_template_without_training_id_is_selected_by_all_its_labels() -> None:
    built = learner.create_stateful_set_spec_for_learner("n", "s", 1, template(a="b", c="d"))
    assert as_json(built.spec)["selector"] == {"matchLabels": {"a": "b", "c": "d"}}


@pytest.mark.parametrize("metadata", [None, V1ObjectMeta(), V1ObjectMeta(labels={})])
def test_a_template_without_labels_is_refused(metadata: V1ObjectMeta | None) -> None:
    bare = V1PodTemplateSpec(metadata=metadata)
    with pytest.raises(
        InvalidSpecError, match=r"^pod_template_spec\.metadata\.labels: should have"
    ):
        learner.create_stateful_set_spec_for_learner("n", "s", 1, bare)


def test_options_of_the_stateful_set_are_added_to_it() -> None:
    built = learner.create_stateful_set_spec_for_learner(
        "n",
        "s",
        1,
        template(a="b"),
        pod_management_policy="OrderedReady",
        min_ready_seconds=5,
        namespace="ml",
        labels={"dag": "d"},
        annotations={"try": "1"},
    )
    built_json = as_json(built)
    assert built_json["metadata"] == {
        "name": "n",
        "namespace": "ml",
        "labels": {"a": "b", "dag": "d"},
        "annotations": {"try": "1"},
    }
    assert built_json["spec"]["podManagementPolicy"] == "OrderedReady"
    assert built_json["spec"]["minReadySeconds"] == 5
    assert built_json["spec"]["selector"] == {"matchLabels": {"a": "b"}}


# 2


def test_no_map_is_shared_with_the_caller_or_between_objects() -> None:
    labels, node_selector = {"training_id": "t-1"}, {"disk": "ssd"}
    pod: Any = learner.create_pod_spec([], [], labels, node_selector, "")
    stateful_set: Any = learner.create_stateful_set_spec_for_learner("n", "s", 1, pod)
    service: Any = learner.create_service_spec("n", "t-1", labels=labels)
    container: Any = learner.create_container_spec(learner.Container())
    before = copy.deepcopy((labels, node_selector))

    maps = [
        (labels, node_selector),
        (pod.metadata.labels, pod.spec.node_selector),
        (stateful_set.metadata.labels, stateful_set.spec.selector.match_labels),
        (service.metadata.labels, service.spec.selector),
        (container.resources.requests, container.resources.limits),
    ]
    assert len({id(one) for pair in maps for one in pair}) == 2 * len(maps)
    assert (labels, node_selector) == before


# 3


def test_the_node_selector_is_applied_and_what_is_empty_is_left_out() -> None:
    full = as_json(learner.create_pod_spec([], None, None, {"gpu": "v100"}, "regcred"))
    assert full["metadata"]["labels"] == {"service": "dlaas-learner"}
    assert full["spec"]["nodeSelector"] == {"gpu": "v100"}
    assert full["spec"]["imagePullSecrets"] == [{"name": "regcred"}]

    empty = as_json(learner.create_pod_spec([], [], {}, {}, ""))
    assert empty["spec"].keys() == {"automountServiceAccountToken", "containers", "tolerations"}

    container = as_json(learner.create_container_spec(learner.Container(name="learner")))
    assert not {"env", "volumeMounts"} & container.keys()


# 4


def test_the_service_publishes_learners_that_are_not_ready() -> None:
    built = learner.create_service_spec(
        "learner",
        "t-1",
        namespace="ml",
        labels={"dag": "d"},
        extra_ports=[V1ServicePort(name="jax", port=1234)],
    )
    assert as_json(built) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "learner",
            "namespace": "ml",
            "labels": {"dag": "d", "training_id": "t-1"},
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"training_id": "t-1"},
            "ports": [
                {"name": "ssh", "port": 22, "protocol": "TCP"},
                {"name": "tf-distributed", "port": 2222, "protocol": "TCP"},
                {"name": "jax", "port": 1234},
            ],
        },
    }


# 5


def test_the_last_value_wins_in_the_first_ones_place() -> None:
    built = environment(
        V1EnvVar(name="TRAINING_ID", value="fake"),
        V1EnvVar(name="DATA_DIR", value="first"),
        V1EnvVar(name="GPU_COUNT", value="1"),
        V1EnvVar(name="DATA_DIR", value="last"),
    )
    assert [(env_var["name"], env_var.get("value")) for env_var in built] == [
        ("TRAINING_ID", "t-1"),
        ("DATA_DIR", "/job/last"),
        ("GPU_COUNT", "1"),
        ("DOWNWARD_API_POD_NAME", None),
        ("DOWNWARD_API_POD_NAMESPACE", None),
        ("LEARNER_NAME_PREFIX", "learner"),
        ("NUM_LEARNERS", "2"),
        ("JOB_STATE_DIR", "/job"),
        ("CHECKPOINT_DIR", None),
        ("RESULT_BUCKET_DIR", None),
    ]


def test_the_last_value_wins_in_the_containers_environment_too() -> None:
    env_vars = [V1EnvVar(name=name, value=value) for name, value in ("A1", "B2", "A3")]
    built = as_json(learner.create_container_spec(learner.Container(env_vars=env_vars)))
    assert built["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]


def test_a_folder_that_comes_from_elsewhere_is_kept_as_it_is() -> None:
    source = V1EnvVarSource(secret_key_ref=V1SecretKeySelector(name="store", key="dir"))
    built = environment(
        V1EnvVar(name="DATA_DIR", value_from=source),
        V1EnvVar(name="RESULT_DIR", value_from=source),
        mounted=True,
    )
    reference = {"secretKeyRef": {"name": "store", "key": "dir"}}
    assert built[:2] == [
        {"name": "DATA_DIR", "valueFrom": reference},
        {"name": "RESULT_DIR", "valueFrom": reference},
    ]
    assert built[-2:] == [
        {"name": "CHECKPOINT_DIR", "value": "/mnt/results/_wml_checkpoints"},
        {"name": "RESULT_BUCKET_DIR", "value": "/mnt/results"},
    ]


# 6


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("name", ["MODEL_DIR", "DATA_DIR", "RESULT_DIR", "LOG_DIR"])
@pytest.mark.parametrize("value", ["..", "../up", "/../up", "a/../../../../etc", "../jobs"])
def test_a_path_that_leaves_its_folder_is_refused_by_name(
    *, value: str, name: str, mounted: bool
) -> None:
    with pytest.raises(InvalidSpecError, match=f"^{name}: should be a path that no"):
        environment(V1EnvVar(name=name, value=value), mounted=mounted)


@pytest.mark.parametrize(("value", "training_id"), [("res", "../../x"), ("..", "results")])
def test_a_training_id_leads_results_nowhere_else(value: str, training_id: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"^RESULT_DIR: .* out of /mnt/results$"):
        environment(V1EnvVar(name="RESULT_DIR", value=value), training_id=training_id, mounted=True)


def test_a_path_may_go_up_inside_its_folder_and_a_name_may_begin_with_dots() -> None:
    built = environment(
        V1EnvVar(name="DATA_DIR", value="a/../b"),
        V1EnvVar(name="LOG_DIR", value="..logs"),
        V1EnvVar(name="UNKNOWN_DIR", value="../.."),
    )
    assert [env_var["value"] for env_var in built[:2]] == ["/job/b", "/job/..logs"]


# 7


def test_a_mounted_volume_is_a_claim_and_an_object_store_a_staged_folder() -> None:
    named = store("mount_volume", mount_spec=learner.VolumeMountSpec("/mnt", name="my-claim"))
    volumes = learner.Volumes(named, store("s3_datastore"))
    assert as_json(volumes.create_volume_for_learner()) == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "my-claim"}},
        {"name": "data", "emptyDir": {}},
    ]
    unnamed = learner.Volumes(results_dir=store("mount_volume"))
    [claim] = as_json(unnamed.create_volume_for_learner())
    assert claim == {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def test_a_host_path_has_no_type_so_that_nothing_is_checked_or_made_on_the_node() -> None:
    [volume] = learner.Volumes(store("host_mount", host_path="/x")).create_volume_for_learner()
    assert as_json(volume) == {"name": "data", "hostPath": {"path": "/x"}}


@pytest.mark.parametrize("volume_type", ["", "Mount_COS", "swift"])
def test_an_unknown_volume_type_is_refused_with_the_known_ones(volume_type: str) -> None:
    message = r"volume_type: should be one of mount_volume, host_mount, mount_cos, s3_datastore$"
    data = learner.Volumes(training_data=store(volume_type))
    with pytest.raises(InvalidSpecError, match=f"^training_data.{message}"):
        data.create_volume_for_learner()
    results = learner.Volumes(store("host_mount"), store(volume_type))
    with pytest.raises(InvalidSpecError, match=f"^results_dir.{message}"):
        results.create_volume_mounts_for_learner()


# 8


@pytest.mark.parametrize("framework", ["nope", "nulled", "TensorFlow", ""])
def test_an_unknown_framework_has_the_default_tag(framework: str) -> None:
    path = GOLDEN / "config" / "learner-config.json"
    config = learner.LearnerConfig(learner_config_path=path)
    image = learner.Image(framework, "1.5")
    name = learner.get_learner_image_for_framework(image, config=config)
    assert name == f"docker.io/ffdl/{framework}_gpu_1.5:prod"


# 9 is in test_image_pull_secret.py: test_an_identical_pull_secret_is_taken_over


# 10


@pytest.mark.parametrize("replicas", [-1, 2147483648, 4294967297])
def test_replicas_out_of_range_are_refused(replicas: int) -> None:
    with pytest.raises(InvalidSpecError, match=f"^replicas: .* 0 to 2147483647, not {replicas}$"):
        learner.create_stateful_set_spec_for_learner("n", "s", replicas, template(a="b"))


@pytest.mark.parametrize("replicas", [0, 2147483647])
def test_replicas_at_the_ends_of_the_range_are_taken(replicas: int) -> None:
    built = learner.create_stateful_set_spec_for_learner("n", "s", replicas, template(a="b"))
    assert as_json(built)["spec"]["replicas"] == replicas
