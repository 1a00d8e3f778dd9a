"""What rendering templates leaves in the arguments of a training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
