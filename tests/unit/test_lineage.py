"""What OpenLineage's own provider learns of a training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import attr
import pytest
from airflow.providers.openlineage.extractors import ExtractorManager
from airflow.sdk import Context
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.utils.state import TaskInstanceState

from airflow_learner_provider.exceptions import TrainingFailedError
from airflow_learner_provider.operators import LearnerStatefulSetOperator

MODEL = {"name": "model #1", "size": 5, "sha256": "9f86", "uri": "s3://runs/lr/digits/model%20%231"}
OUTCOME: dict[str, Any] = {
    "name": "digits",
    "namespace": "ml",
    "phase": "Succeeded",
    "reason": "",
    "message": "",
    "artifacts": [],
}
BUCKET = {"type": "s3_datastore", "bucket": "runs", "secret": "keys"}


def extract(outcome: dict[str, Any] | None, **arguments: Any) -> dict[str, Any]:
    """Let a task conclude, and return what the provider makes of it."""
    operator = LearnerStatefulSetOperator(
        task_id="train", learners=1, image="i", command="true", **arguments
    )
    state = TaskInstanceState.FAILED
    if outcome is not None:
        ti = SimpleNamespace(dag_id="digits", task_id="train", xcom_push=lambda **_: None)
        context = cast(Context, {"ti": ti, "outlet_events": OutletEventAccessors()})
        try:
            operator.execute_complete(context, {"outcome": outcome})
            state = TaskInstanceState.SUCCESS
        except TrainingFailedError:
            pass
    run: Any = SimpleNamespace(run_id="run")
    lineage = ExtractorManager().extract_metadata(run, operator, state, task_instance=None)
    return {
        side: [attr.asdict(dataset, filter=_is_ours) for dataset in getattr(lineage, side)]
        for side in ("inputs", "outputs")
    }


def _is_ours(attribute: Any, value: Any) -> bool:
    return not attribute.name.startswith("_") and value not in (None, {})


STORES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "a folder of the node": ({"type": "host_mount", "host_path": "/srv/ml"}, ("file", "/srv/ml")),
    "a claim": ({"type": "mount_volume", "claim": "sets"}, ("pvc://ml", "sets")),
    "a bucket": (BUCKET, ("s3://runs", "/")),
    "a path in a bucket": (BUCKET | {"sub_path": "a b/#1/"}, ("s3://runs", "a b/#1")),
}


@pytest.mark.parametrize("case", STORES)
def test_each_store_has_the_name_that_openlineage_gives_it(case: str) -> None:
    store, (namespace, name) = STORES[case]
    found = extract(OUTCOME, training_data=store)
    assert found == {"inputs": [{"namespace": namespace, "name": name}], "outputs": []}
    found = extract(OUTCOME, results=store)
    directory = f"{name.rstrip('/')}/digits".lstrip("/" if namespace != "file" else "")
    assert found == {"inputs": [], "outputs": [{"namespace": namespace, "name": directory}]}


def test_artifacts_are_datasets_with_size_and_version() -> None:
    endpoint = "https://s3.example.com"
    found = extract(
        OUTCOME | {"artifacts": [MODEL]},
        results=BUCKET | {"sub_path": "lr", "endpoint": endpoint},
        artifacts=["model*"],
    )
    source = {"dataSource": {"name": "s3://runs", "uri": endpoint}}
    assert found["outputs"] == [
        {"namespace": "s3://runs", "name": "lr/digits", "facets": source},
        {
            "namespace": "s3://runs",
            "name": "lr/digits/model #1",
            "facets": source | {"version": {"datasetVersion": "9f86"}},
            "outputFacets": {"outputStatistics": {"size": 5, "fileCount": 1}},
        },
    ]


def test_results_that_a_user_puts_elsewhere_are_somewhere_in_their_store() -> None:
    store = {"type": "mount_volume", "claim": "runs", "sub_path": "x"}
    found = extract(OUTCOME, results=store, env={"RESULT_DIR": "/mnt/results/mine"})
    assert found["outputs"] == [{"namespace": "pvc://ml", "name": "runs/x"}]


def test_a_failed_training_tells_its_stores_too() -> None:
    failed = OUTCOME | {"phase": "Failed", "reason": "ExitCode", "message": "exit code 1"}
    assert extract(failed, training_data=BUCKET)["inputs"]


def test_a_task_without_a_training_tells_nothing() -> None:
    assert extract(None, training_data=BUCKET) == {"inputs": [], "outputs": []}
