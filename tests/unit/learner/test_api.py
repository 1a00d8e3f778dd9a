"""The names and signatures that users rely on."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from airflow_learner_provider import learner

FIELDS = {
    "LearnerConfig": "image_pull_policy learner_registry learner_tag learner_image_pull_secret"
    " learner_namespace device_plugin learner_config_path",
    "Image": "framework version tag registry namespace",
    "Resources": "cpus memory gpus",
    "Container": "image resources volume_mounts name command env_vars",
    "VolumeMountSpec": "mount_path sub_path name",
    "COSVolume": "volume_type id region bucket endpoint secret_ref cache_size disk_free host_path"
    " mount_spec",
    "Volumes": "training_data results_dir",
    "COSVolumeSecret": "id training_id username api_key",
    "SSHVolumeSecret": "id training_id framework version",
    "Secrets": "training_data_secret results_dir_secret",
    "ImageLocation": "registry namespace access_token email",
    "JobDeploymentRequest": "name training_id image_location",
}
PARAMETERS = {
    "create_container_spec": "container",
    "create_pod_spec": "containers volumes labels node_selector image_pull_secret",
    "create_service_spec": "name training_id",
    "create_stateful_set_spec_for_learner": "name service_name replicas pod_template_spec",
    "create_volume_secrets_spec": "secrets",
    "generate_image_pull_secret": "core_v1_api request",
    "get_learner_image_for_framework": "image",
    "populate_learner_env_variables_and_labels": "existing_env_vars training_id num_learners"
    " stateful_set_name mount_training_data_store_in_learner mount_results_store_in_learner",
}
CONSTANTS = {
    "DATA_STORE_TYPE_MOUNT_VOLUME": "mount_volume",
    "DATA_STORE_HOST_MOUNT_VOLUME": "host_mount",
    "DATA_STORE_TYPE_MOUNT_COS_S3": "mount_cos",
    "DATA_STORE_TYPE_S3": "s3_datastore",
}


def test_exactly_the_seeds_names_are_exported() -> None:
    assert set(learner.__all__) == {*FIELDS, *PARAMETERS, *CONSTANTS}
    assert {name: getattr(learner, name) for name in CONSTANTS} == CONSTANTS


@pytest.mark.parametrize("name", FIELDS)
def test_a_type_is_frozen_and_has_the_seeds_fields(name: str) -> None:
    kind = getattr(learner, name)
    assert [field.name for field in dataclasses.fields(kind)] == FIELDS[name].split()
    value = kind()  # every field may be left out
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, FIELDS[name].split()[0], "x")


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_function_has_the_seeds_parameters_and_more_only_as_keywords(name: str) -> None:
    parameters = inspect.signature(getattr(learner, name)).parameters.values()
    positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert positional == PARAMETERS[name].split()
    more = [one for one in parameters if one.kind is not one.POSITIONAL_OR_KEYWORD]
    assert all(one.kind is one.KEYWORD_ONLY and one.default is not one.empty for one in more)


def test_keys_do_not_show_in_repr() -> None:
    secret = learner.COSVolumeSecret("id", "t-1", "user", "k3y")
    assert "k3y" not in repr(learner.Secrets(secret))


def test_the_documentation_has_every_name_and_names_only_tests_that_exist() -> None:
    folder = Path(__file__).parent
    text = (folder.parents[2] / "docs" / "seed.md").read_text("utf-8")
    assert {name for name in learner.__all__ if f"`{name}" not in text} == set()
    tests = "".join(path.read_text("utf-8") for path in folder.glob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", text))
    assert {name for name in named if f"def {name}(" not in tests} == set()
