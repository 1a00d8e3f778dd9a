"""A training's objects as files for kubectl, to be read or applied by hand."""

from __future__ import annotations

from airflow_learner_provider.training.objects import Json, TrainingObjects

# In place of values. The API server wants JSON of a registry's Secret (base64 of "{}" here), and
# some text of an ssh key's.
_LEFT_OUT = {"data": "e30=", "stringData": "left out"}


def build_manifests(objects: TrainingObjects) -> list[Json]:
    """List all objects as kubectl may create them, one after the other.

    The StatefulSet comes last and asks for its learners at once: what it needs is there by then.
    Secrets have their keys, but none of their values.
    """
    stateful_set = objects.stateful_set
    scaled = stateful_set | {"spec": stateful_set["spec"] | {"replicas": objects.learners}}
    return [*map(_without_values, objects.owned), scaled]


def _without_values(manifest: Json) -> Json:
    if manifest["kind"] != "Secret":
        return manifest
    left_out = {}
    for field, value in _LEFT_OUT.items():
        if field in manifest:
            left_out[field] = dict.fromkeys(manifest[field], value)
    return manifest | left_out
