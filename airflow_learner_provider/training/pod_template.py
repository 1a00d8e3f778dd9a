"""The user's pod template: read in either spelling, refused where it is wrong, and filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubernetes.client import ApiClient, models

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.completion import CONTAINER

# By which key the entries of a list are told apart, as in a strategic merge patch.
# https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}


def parse_pod_template(template: Mapping[str, Any]) -> dict[str, Any]:
    """Read a pod template and return it as Kubernetes JSON.

    :param template: a PodTemplateSpec with keys spelt as in YAML or as in Python; model objects may
        stand anywhere in it.
    :raises InvalidSpecError: names the key that is not known, or that the provider sets itself.
    """
    parsed: dict[str, Any] = _parse(template, "V1PodTemplateSpec", "pod_template")
    spec = parsed.get("spec", {})
    if spec.get("restartPolicy", "Always") != "Always":
        raise InvalidSpecError(
            "pod_template.spec.restartPolicy: a StatefulSet takes only Always; "
            "a learner that has ended is not run again all the same"
        )
    for container in spec.get("containers", ()):
        if container.get("name") == CONTAINER and container.keys() & {"command", "args"}:
            raise InvalidSpecError(
                f"pod_template.spec.containers: the command of {CONTAINER!r} is given by command="
            )
    return parsed


def _parse(value: Any, kind: str, path: str) -> Any:
    if hasattr(value, "openapi_types"):
        value = ApiClient().sanitize_for_serialization(value)
    nested = re.fullmatch(r"(list|dict)[\[(](?:str, )?(.+)[\])]", kind)
    if nested is not None:
        return _parse_collection(value, nested[1], nested[2], path)
    model = getattr(models, kind, None)
    if model is None or value is None:
        return value  # a scalar: its type is the API server's to judge
    if not isinstance(value, Mapping):
        raise InvalidSpecError(f"{path}: should be a mapping")
    attributes = {name: name for name in model.attribute_map}
    attributes |= {key: name for name, key in model.attribute_map.items()}
    parsed = {}
    for key, part in value.items():
        name = attributes.get(key)
        if name is None:
            raise InvalidSpecError(f"{path}.{key}: is not a known key")
        if part is not None:
            json_key = model.attribute_map[name]
            parsed[json_key] = _parse(part, model.openapi_types[name], f"{path}.{json_key}")
    return parsed


def _parse_collection(value: Any, collection: str, kind: str, path: str) -> Any:
    if collection == "list":
        if not isinstance(value, list | tuple):
            raise InvalidSpecError(f"{path}: should be a list")
        return [_parse(part, kind, f"{path}[{i}]") for i, part in enumerate(value)]
    if not isinstance(value, Mapping):
        raise InvalidSpecError(f"{path}: should be a mapping")
    return {key: _parse(part, kind, f"{path}.{key}") for key, part in value.items()}


def fill_in(template: Any, built: Any, *, key: str = "") -> Any:
    """Fill a template in with what was built: the template wins wherever both speak.

    Mappings are merged key by key; lists whose entries have a name are merged by it, all other
    lists are the built one followed by the template's.

    :return: a new value; neither argument is changed.
    """
    if isinstance(template, Mapping) and isinstance(built, Mapping):
        merged = {name: fill_in(template.get(name), part, key=name) for name, part in built.items()}
        return merged | {name: part for name, part in template.items() if name not in built}
    if isinstance(template, list) and isinstance(built, list):
        return _fill_in_list(template, built, key=_MERGE_KEYS.get(key))
    return built if template is None else template


def _fill_in_list(template: list[Any], built: list[Any], *, key: str | None) -> list[Any]:
    if key is None:
        return built + [part for part in template if part not in built]
    given = {part.get(key): part for part in template}
    merged = [fill_in(given.pop(part[key], None), part) for part in built]
    return merged + list(given.values())
