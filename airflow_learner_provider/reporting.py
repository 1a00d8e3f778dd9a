"""Progress of a training, told to Airflow while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_learner_provider.training.naming import Owner

XCOM_KEY = "progress"
GAUGE = "learner_training"


def report_progress(owner: Owner, progress: Mapping[str, Any]) -> None:
    """Push progress as the task's XCom `progress`, and set a gauge for each of its numbers.

    The same in a worker and in a triggerer: both serve XComs to what runs in them. It blocks, so a
    triggerer calls it in a thread.

    :param progress: see `training.progress.ProgressCurve.to_json`.
    """
    from airflow.sdk.bases.xcom import BaseXCom

    BaseXCom.set(
        key=XCOM_KEY,
        value=dict(progress),
        dag_id=owner.dag_id,
        task_id=owner.task_id,
        run_id=owner.run_id,
        map_index=owner.map_index,
    )
    _set_gauges(owner, progress)


def _set_gauges(owner: Owner, progress: Mapping[str, Any]) -> None:
    # Pushing an XCom has made the serializers ready, and they make these metrics ready: in a
    # triggerer (seen in 3.3.2) nothing else does.
    from airflow.sdk.observability.stats import Stats, normalize_name_for_stats

    tags = {"dag_id": owner.dag_id, "task_id": owner.task_id}
    numbers = {"step": progress["step"], "percent": progress["percent"], **progress["metrics"]}
    for name, value in numbers.items():
        if value is not None:
            stat = normalize_name_for_stats(f"{GAUGE}.{name}", log_warning=False)
            Stats.gauge(stat, value, tags=tags)
