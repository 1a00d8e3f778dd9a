"""What a training reads and writes, under the names that OpenLineage gives to data.

https://openlineage.io/docs/spec/naming
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_learner_provider.training.artifacts import build_store_uri
from airflow_learner_provider.training.spec import Store, TrainingSpec


@dataclass(frozen=True)
class Dataset:
    """A directory of a store, or a file in it.

    :param namespace: such as "s3://bucket".
    :param name: path in it.
    :param endpoint: URL of the store's server, where the store names one.
    :param size: of a file, in bytes.
    :param sha256: of a file, 64 hexadecimal digits.
    """

    namespace: str
    name: str
    endpoint: str | None = None
    size: int | None = None
    sha256: str | None = None


def list_inputs(spec: TrainingSpec, outcome: Mapping[str, Any]) -> list[Dataset]:
    """List what a training reads: the directory of its training data."""
    store = spec.training_data
    return [] if store is None else [_name_directory(store, outcome, path="")]


def list_outputs(spec: TrainingSpec, outcome: Mapping[str, Any]) -> list[Dataset]:
    """List what a training writes: the directory of its results, and each artifact in it."""
    store = spec.results
    if store is None:
        return []
    # A directory that the user chose may be anywhere in the store.
    path = "" if "RESULT_DIR" in spec.env else outcome["name"]
    artifacts = [
        _name(row["uri"], endpoint=store.endpoint, size=row["size"], sha256=row["sha256"])
        for row in outcome["artifacts"]
    ]
    return [_name_directory(store, outcome, path=path), *artifacts]


def _name_directory(store: Store, outcome: Mapping[str, Any], *, path: str) -> Dataset:
    uri = build_store_uri(store.model_dump(), namespace=outcome["namespace"], path=path)
    return _name(uri, endpoint=store.endpoint)


def _name(uri: str, **known: Any) -> Dataset:
    scheme, host, path, _, _ = urlsplit(uri)
    if scheme == "file":
        return Dataset("file", unquote(path), **known)
    return Dataset(f"{scheme}://{host}", unquote(path).lstrip("/") or "/", **known)
