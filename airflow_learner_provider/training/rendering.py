"""What rendering templates leaves in the arguments of a training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any


def find_none(value: Any, path: str = "") -> Iterator[str]:
    """Name the places where a template found no value, such as an XCom that is not there.

    Jinja renders it as the text "None", which would go to the cluster as any other text does.
    """
    if value == "None":
        yield path
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from find_none(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from find_none(part, f"{path}.{index}")


def to_json(value: Any) -> Any:
    """Turn an argument of an operator into plain JSON: times are seconds."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if hasattr(value, "openapi_types"):  # a Kubernetes model: whoever made it has the client loaded
        from kubernetes.client import ApiClient

        return ApiClient().sanitize_for_serialization(value)
    return value
