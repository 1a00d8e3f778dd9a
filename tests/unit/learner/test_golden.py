"""The vectors that running the original Go package gave, each compared as a whole.

What ours does otherwise on purpose is applied to a vector before comparing, one function for each
difference of ``docs/seed.md``, by what the vector says and never by its name.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator

import pytest
from kubernetes.utils.quantity import parse_quantity  # type: ignore[import-untyped]

from airflow_learner_provider.exceptions import InvalidSpecError
from tests.unit.learner.vectors import GOLDEN, VECTORS, Json, build, ids

UNSET: list[tuple[str, Json]] = [
    ("targetPort", 0),
    ("updateStrategy", {}),
    ("status", {"loadBalancer": {}}),
    ("status", {"replicas": 0, "availableReplicas": 0}),
]
ADDED_ENV = 8  # variables that every environment ends with
ROOTS = {"DATA_DIR": "/mnt/data", "RESULT_DIR": "/mnt/results"}
VOLUME_TYPES = {"mount_volume", "host_mount", "mount_cos", "s3_datastore"}


# What is only another way to write the same object.


def comparable(value: Json, *, key: str = "") -> Json:
    """Return JSON without what Go prints of a value that is not set, and quantities as numbers."""
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if not isinstance(value, dict):
        return value
    if key in {"requests", "limits"}:
        return {name: parse_quantity(quantity) for name, quantity in value.items()}
    return {
        name: comparable(member, key=name)
        for name, member in value.items()
        if member not in (None, []) and (name, member) not in UNSET
    }


# The differences: each takes a vector's input and output, and returns the output that ours has.


class Refused(Exception):  # noqa: N818 - an outcome
    """Ours has to refuse the input, with a message that names this."""


def apps_v1_with_selector(vector: dict[str, Json], output: Json) -> Json:
    labels = output["metadata"].get("labels")
    if not labels:
        raise Refused("pod_template_spec.metadata.labels")
    selector = {"training_id": labels["training_id"]} if "training_id" in labels else labels
    output["spec"] |= {"selector": {"matchLabels": selector}, "podManagementPolicy": "Parallel"}
    return output | {"apiVersion": "apps/v1", "kind": "StatefulSet"}


def node_selector_and_pull_secret(vector: dict[str, Json], output: Json) -> Json:
    if vector["input"]["node_selector"]:
        output["spec"]["nodeSelector"] = vector["input"]["node_selector"]
    if not vector["input"]["image_pull_secret"]:
        del output["spec"]["imagePullSecrets"]
    return output


def not_ready_addresses(vector: dict[str, Json], output: Json) -> Json:
    output["spec"]["publishNotReadyAddresses"] = True
    return output | {"apiVersion": "v1", "kind": "Service"}


def unique_names(env: Json) -> Json:
    return list({env_var["name"]: env_var for env_var in env}.values())


def unique_names_in_container(vector: dict[str, Json], output: Json) -> Json:
    return output | {"env": unique_names(output.get("env", []))}


def unique_names_and_value_from(vector: dict[str, Json], output: Json) -> Json:
    kept = [
        before if "valueFrom" in before else after for before, after in kept_env(vector, output)
    ]
    return unique_names(kept + output[-ADDED_ENV:])


def paths_that_stay(vector: dict[str, Json], output: Json) -> Json:
    value = vector["input"]
    mounted = {
        "DATA_DIR": value["mount_training_data_store_in_learner"],
        "RESULT_DIR": value["mount_results_store_in_learner"],
    }
    for before, after in kept_env(vector, output):
        name = before["name"]
        if name.endswith("_DIR") and "valueFrom" not in before:
            root = ROOTS[name] if mounted.get(name) else "/job"
            if f"{after['value']}/".startswith(f"{root}/"):
                continue
            raise Refused(name)
    return output


def kept_env(vector: dict[str, Json], output: Json) -> Iterator[tuple[Json, Json]]:
    """Yield the variables that the original kept, as they were given and as it returned them."""
    kept = output[:-ADDED_ENV]
    names = {env_var["name"] for env_var in kept}
    given = [env_var for env_var in vector["input"]["env"] or [] if env_var["name"] in names]
    return zip(given, kept, strict=True)


def known_volume_types(vector: dict[str, Json], output: Json) -> Json:
    for field, store in vector["input"].items():
        if store is not None and store["volume_type"] not in VOLUME_TYPES:
            raise Refused(f"{field}.volume_type")
    return output


def claims_and_staged_volumes(vector: dict[str, Json], output: Json) -> Json:
    known_volume_types(vector, output)
    originals, volumes = list(output or []), []
    for store in vector["input"].values():
        if store is None:
            continue
        if store["volume_type"] == "mount_volume":
            claim = {"claimName": store["mount_spec"]["name"] or store["id"]}
            volumes.append({"name": store["id"], "persistentVolumeClaim": claim})
        elif store["volume_type"] == "s3_datastore":
            volumes.append({"name": store["id"], "emptyDir": {}})
        else:
            volumes.append(originals.pop(0))
    return volumes


def replicas_in_range(vector: dict[str, Json], output: Json) -> Json:
    if not 0 <= vector["input"]["replicas"] <= 2147483647:
        raise Refused("replicas")
    return output


def secrets_with_kind(vector: dict[str, Json], output: Json) -> Json:
    return [secret | {"apiVersion": "v1", "kind": "Secret"} for secret in output or []]


DIFFERENCES: dict[str, list[Callable[[dict[str, Json], Json], Json]]] = {
    "create_container_spec": [unique_names_in_container],
    "create_pod_spec": [node_selector_and_pull_secret],
    "create_service_spec": [not_ready_addresses],
    "create_stateful_set_spec_for_learner": [replicas_in_range, apps_v1_with_selector],
    "create_volume_for_learner": [claims_and_staged_volumes],
    "create_volume_mounts_for_learner": [known_volume_types, lambda _, output: output or []],
    "create_volume_secrets_spec": [secrets_with_kind],
    "get_learner_image_for_framework": [],
    "populate_learner_env_variables_and_labels": [paths_that_stay, unique_names_and_value_from],
}


def tag_of(vector: dict[str, Json]) -> Json:
    """Return the tag for what made the original panic: no such framework, or a null in the file."""
    config, image = vector["config"], vector["input"]
    document = json.loads((GOLDEN / config["learner_config_path"]).read_text("utf-8")) or {}
    details = document.get("frameworks", {}).get(image["framework"]) or {}
    builds = [
        entry["build"]
        for entry in details.get("versions", [])
        if entry and entry.get("version") == image["version"]
    ]
    return builds[0] if builds else config["learner_tag"]


def without_panic(vector: dict[str, Json]) -> Json:
    """Return the input that has to give the same result as the one the original panicked at."""
    if vector["function"] == "create_pod_spec":
        return vector["input"] | {"labels": {}}
    return vector["input"] | {"tag": tag_of(vector)}


BUILT = [
    vector for vector in VECTORS if vector["function"] in DIFFERENCES and "panic" not in vector
]
PANICS = [vector for vector in VECTORS if "panic" in vector]


@pytest.mark.parametrize("vector", BUILT, ids=ids(BUILT))
def test_ours_builds_what_the_original_built(vector: dict[str, Json]) -> None:
    before = copy.deepcopy(vector)
    output = copy.deepcopy(vector["output"])
    try:
        for difference in DIFFERENCES[vector["function"]]:
            output = difference(vector, output)
    except Refused as refused:
        with pytest.raises(InvalidSpecError, match=f"^{refused}: "):
            build(vector)
    else:
        assert comparable(build(vector)) == comparable(output)
    assert vector == before


@pytest.mark.parametrize("vector", PANICS, ids=ids(PANICS))
def test_ours_builds_where_the_original_panicked(vector: dict[str, Json]) -> None:
    built = build(vector)
    assert built == build(vector | {"input": without_panic(vector)})
    assert without_panic(vector) != vector["input"]


def test_every_vector_is_compared() -> None:
    functions = {*DIFFERENCES, "generate_image_pull_secret"}  # test_image_pull_secret.py
    assert {vector["function"] for vector in VECTORS} == functions
    assert len(VECTORS) == 183
