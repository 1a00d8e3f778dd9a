"""How artifacts become events of assets, by Airflow's own accessors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from airflow.sdk import Asset, AssetAlias, Context
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_learner_provider.assets import add_artifact_events

ROW = {"name": "model", "size": 5, "sha256": "9f86"}
OUTCOME = {"artifacts": [ROW | {"uri": f"s3://runs/{name}"} for name in ("a", "b")]}


def tell(*outlets: Any) -> tuple[list[Any], OutletEventAccessors]:
    """Return the outlets that the task has then, and the events."""
    known, events = list(outlets), OutletEventAccessors()
    ti = SimpleNamespace(dag_id="digits", task_id="train")
    add_artifact_events(cast(Context, {"ti": ti, "outlet_events": events}), known, OUTCOME)
    return known, events


def told_by(events: OutletEventAccessors, alias: str) -> dict[str, Any]:
    added = events[AssetAlias(alias)].asset_alias_events
    return {event.dest_asset_key.uri: event.extra for event in added}


def test_declared_asset_gets_the_extra_and_the_alias_makes_the_others() -> None:
    declared, alias = Asset("model", "s3://runs/a"), AssetAlias("models")
    outlets, events = tell(declared, alias)
    assert outlets == [declared, alias]
    assert events[declared].extra == ROW
    assert told_by(events, "models") == {"s3://runs/b": ROW}


def test_task_without_an_alias_has_one_of_its_name() -> None:
    outlets, events = tell()
    assert outlets == [AssetAlias("digits.train")]
    assert told_by(events, "digits.train") == {"s3://runs/a": ROW, "s3://runs/b": ROW}
