"""The example DAGs are what users copy: they parse, explain themselves and serialize stably."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DAGS = Path(__file__).parents[2] / "dags"
IDS = [
    "launch_then_wait",
    "train_digits_pipeline",
    "train_from_form",
    "train_from_s3",
    "train_mpi",
    "train_on_schedule",
    "train_tensorflow",
    "train_torchrun",
    "train_with_function",
]
# Reads all DAG files as the dag processor does, in a process with a hash seed of its own.
PROGRAM = """
import json, sys
from pathlib import Path
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

folder = Path(sys.argv[1])
bag = DagBag(folder, bundle_path=folder, bundle_name="dags")
dags = {dag_id: DagSerialization.to_dict(dag) for dag_id, dag in bag.dags.items()}
heavy = [name for name in ("kubernetes", "kubernetes_asyncio") if name in sys.modules]
result = {"dags": dags, "errors": bag.import_errors, "heavy": heavy}
print("\\n" + json.dumps(result))
"""


def read_dags(hash_seed: int) -> Any:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(DAGS)],
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def parsed() -> Any:
    return read_dags(hash_seed=1)


@pytest.fixture(scope="module")
def dags(parsed: Any) -> dict[str, Any]:
    return {dag_id: serialized["dag"] for dag_id, serialized in parsed["dags"].items()}


def read_tasks(dag: Any) -> dict[str, Any]:
    return {task["__var"]["task_id"]: task["__var"] for task in dag["tasks"]}


def read_schema(dag: Any, name: str) -> Any:
    params = dict(dag["params"])
    return params[name]["schema"]["__var"] | {"default": params[name]["default"]}


def test_all_dags_are_read_without_an_error(parsed: Any) -> None:
    assert parsed["errors"] == {}
    assert sorted(parsed["dags"]) == IDS
    assert sorted(path.stem for path in DAGS.glob("*.py")) == IDS


def test_reading_them_imports_no_kubernetes_client(parsed: Any) -> None:
    assert parsed["heavy"] == []


def test_each_parse_gives_the_same_dags(parsed: Any) -> None:
    assert read_dags(hash_seed=2) == parsed


@pytest.mark.parametrize("dag_id", IDS)
def test_a_dag_explains_itself(dags: dict[str, Any], dag_id: str) -> None:
    assert dags[dag_id]["doc_md"].strip().startswith("###")
    assert set(dags[dag_id]["tags"]) == {"example", "learners"}


def test_the_pipeline_goes_from_the_data_to_the_asset(dags: dict[str, Any]) -> None:
    tasks = read_tasks(dags["train_digits_pipeline"])
    downstream = {name: sorted(task.get("downstream_task_ids", [])) for name, task in tasks.items()}
    assert downstream == {
        "preprocess": ["train"],
        "train": ["evaluate", "publish"],
        "evaluate": ["publish"],
        "publish": [],
    }
    assert [outlet["__var"]["name"] for outlet in tasks["publish"]["outlets"]] == ["digits_model"]


def test_the_schedule_is_daily_and_catches_nothing_up(dags: dict[str, Any]) -> None:
    dag = dags["train_on_schedule"]
    # Airflow before 3.3 keeps it as it was written.
    assert dag["timetable"]["__var"]["expression"] in {"0 0 * * *", "@daily"}
    assert dag["catchup"] is False
    assert read_tasks(dag)["train"]["retries"] == 3


def test_the_form_has_bounds_and_helps(dags: dict[str, Any]) -> None:
    dag = dags["train_from_form"]
    for name, param in dag["params"]:
        assert param["description"], name
        assert read_schema(dag, name)["title"], name
    assert (
        read_schema(dag, "learners").items()
        >= {
            "type": "integer",
            "minimum": 1,
            "maximum": 8,
            "default": 2,
        }.items()
    )
    assert read_schema(dag, "epochs")["type"] == "integer"
    assert (
        read_schema(dag, "learning_rate").items()
        >= {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
        }.items()
    )
    assert read_schema(dag, "image")["type"] == "string"
    assert read_schema(dag, "memory")["pattern"] == "^[1-9][0-9]*(Mi|Gi)$"


def test_what_was_launched_is_removed_by_a_teardown(dags: dict[str, Any]) -> None:
    tasks = read_tasks(dags["launch_then_wait"])
    assert tasks["launch"]["is_setup"]
    assert tasks["remove"]["is_teardown"]
    assert tasks["launch"]["template_fields"]
