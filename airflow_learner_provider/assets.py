"""What a training means to Airflow's assets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

if TYPE_CHECKING:
    from airflow.sdk import Context


def add_evidence(context: Context, outlets: list[Any], outcome: Mapping[str, Any]) -> None:
    """Let the event of each asset in a task's outlets say which training made it."""
    from airflow_learner_provider.training.evidence import build_evidence

    for asset in outlets:
        if isinstance(asset, Asset):
            context["outlet_events"][asset].extra |= build_evidence(outcome)


def add_artifact_events(context: Context, outlets: list[Any], outcome: Mapping[str, Any]) -> None:
    """Let each artifact of a training be an event of the asset that its URI names.

    An asset that the task has in its outlets gets size and checksum into its event. Any other one
    is made now, which Airflow does by an alias: by those in the outlets, else by `<dag>.<task>`.

    :param outlets: of the task, where that alias is added.
    """
    from airflow_learner_provider.training.artifacts import list_artifact_events

    for uri, extra in list_artifact_events(outcome):
        asset = Asset(uri)
        declared = [each for each in outlets if isinstance(each, Asset) and each.uri == asset.uri]
        for each in declared:
            context["outlet_events"][each].extra |= extra
        if declared:
            continue
        if not any(isinstance(each, AssetAlias) for each in outlets):
            ti = context["ti"]
            outlets.append(AssetAlias(f"{ti.dag_id}.{ti.task_id}"))
        for alias in (each for each in outlets if isinstance(each, AssetAlias)):
            context["outlet_events"][alias].add(asset, extra=extra)
