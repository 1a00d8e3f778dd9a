"""What holds for every input."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import (
    V1EnvVar,
    V1EnvVarSource,
    V1ObjectFieldSelector,
    V1VolumeMount,
)

from airflow_learner_provider import learner
from airflow_learner_provider.exceptions import InvalidSpecError
from tests.unit.learner.vectors import as_json

TEXT = st.text(max_size=8)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3)
PATHS = st.lists(st.sampled_from(["..", ".", "", "a", "b", "...", " "]), max_size=6).map("/".join)
FOLDERS = ["MODEL_DIR", "DATA_DIR", "RESULT_DIR", "RESULT_BUCKET_DIR", "LOG_DIR", "CHECKPOINT_DIR"]
NAMES = st.sampled_from([*FOLDERS, "JOB_STATE_DIR", "TRAINING_ID", "GPU_COUNT", "API_KEY"])
FROM_POD = V1EnvVarSource(field_ref=V1ObjectFieldSelector(field_path="metadata.name"))
# A ".." may lead a folder out of where it has to be, which is refused.
VALUES = st.none() | TEXT.filter(lambda value: ".." not in value)
ENV_VARS = st.lists(
    st.builds(V1EnvVar, name=NAMES, value=VALUES)
    | st.builds(V1EnvVar, name=NAMES, value_from=st.just(FROM_POD)),
    max_size=6,
)
MOUNT_SPECS = st.builds(learner.VolumeMountSpec, TEXT, TEXT, TEXT)
TYPES = st.sampled_from(["mount_volume", "host_mount", "mount_cos", "s3_datastore"])
STORES = st.builds(learner.COSVolume, TYPES, *[TEXT] * 8, mount_spec=MOUNT_SPECS)
IMAGES = st.builds(learner.Image, *[TEXT] * 5)


def environment(env_vars: list[V1EnvVar], training_id: str, mounted: tuple[bool, bool]) -> Any:
    return as_json(
        learner.populate_learner_env_variables_and_labels(
            env_vars, training_id, 2, "learner", *mounted
        )
    )


@given(ENV_VARS, st.tuples(st.booleans(), st.booleans()))
def test_no_name_is_twice_in_the_environment(
    env_vars: list[V1EnvVar], mounted: tuple[bool, bool]
) -> None:
    before = copy.deepcopy(env_vars)
    names = [env_var["name"] for env_var in environment(env_vars, "t-1", mounted)]
    assert len(names) == len(set(names))
    assert "API_KEY" not in names
    assert env_vars == before


def walk(path: str) -> str:
    """Return where a path leads, step by step."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return f"/{'/'.join(parts)}"


@given(
    st.sampled_from(["MODEL_DIR", "DATA_DIR", "RESULT_DIR", "LOG_DIR"]),
    PATHS,
    PATHS,
    st.tuples(st.booleans(), st.booleans()),
)
def test_a_path_leads_where_it_says_or_is_refused(
    name: str, path: str, training_id: str, mounted: tuple[bool, bool]
) -> None:
    root, leads_to = "/job", [path]
    if name == "DATA_DIR" and mounted[0]:
        root = "/mnt/data"
    if name == "RESULT_DIR" and mounted[1]:
        root, leads_to = "/mnt/results", [f"{path}/{training_id}", path]
    paths = [walk(f"{root}/{below}") for below in leads_to]

    env_vars = [V1EnvVar(name=name, value=path)]
    if not all(f"{one}/".startswith(f"{root}/") for one in paths):
        with pytest.raises(InvalidSpecError, match=f"^{name}: "):
            environment(env_vars, training_id, mounted)
        return
    built = {
        env_var["name"]: env_var.get("value")
        for env_var in environment(env_vars, training_id, mounted)
    }
    assert built[name] == paths[0]
    bucket_dir = paths[1] if len(paths) == 2 else None
    assert built["RESULT_BUCKET_DIR"] == bucket_dir
    assert built["CHECKPOINT_DIR"] == (bucket_dir and f"{bucket_dir}/_wml_checkpoints")


@given(st.none() | STORES, st.none() | STORES)
def test_each_mount_has_its_volume_and_names_are_as_unique_as_ids(
    training_data: learner.COSVolume | None, results_dir: learner.COSVolume | None
) -> None:
    volumes = learner.Volumes(training_data, results_dir)
    stores = [store for store in (training_data, results_dir) if store is not None]
    names = [volume.name for volume in volumes.create_volume_for_learner()]
    assert names == [mount.name for mount in volumes.create_volume_mounts_for_learner()]
    assert len(set(names)) == len({store.id for store in stores})


@given(
    image=IMAGES,
    env_vars=ENV_VARS,
    name=TEXT,
    command=TEXT,
    labels=LABELS,
    node_selector=LABELS,
)
def test_no_argument_is_ever_changed(
    *,
    image: learner.Image,
    env_vars: list[V1EnvVar],
    name: str,
    command: str,
    labels: dict[str, str],
    node_selector: dict[str, str],
) -> None:
    mounts = [V1VolumeMount(name=name, mount_path="/mnt")]
    arguments = (image, env_vars, mounts, labels, node_selector)
    before = copy.deepcopy(arguments)
    container = learner.create_container_spec(
        learner.Container(
            image=image, volume_mounts=mounts, name=name, command=command, env_vars=env_vars
        )
    )
    pod = learner.create_pod_spec([container], [], labels, node_selector, name)
    pod_before = copy.deepcopy(pod)
    learner.create_stateful_set_spec_for_learner(name, name, 1, pod, labels=labels)
    learner.create_service_spec(name, name, labels=labels)
    assert arguments == before
    assert pod == pod_before
