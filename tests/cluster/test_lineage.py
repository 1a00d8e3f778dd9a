"""OpenLineage's own provider hears of the data of a training, in an Airflow that has it set up."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.airflow.rest import Task
from dev.airflow.server import Airflow
from tests.cluster.fixtures import AirflowUnderTest


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file to which OpenLineage's events go, one a line."""
    return tmp_path_factory.mktemp("lineage") / "events"


@pytest.fixture(scope="module")
def running_airflow(tmp_path_factory: pytest.TempPathFactory, events: Path) -> Iterator[Airflow]:
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    environment = {"AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport)}
    with Airflow(tmp_path_factory.mktemp("airflow"), environment=environment) as airflow:
        yield airflow


def read_end(events: Path, task: Task) -> Any:
    """Wait for the event of a task's end, which may come after the end itself."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        told = [json.loads(line) for line in events.read_text().splitlines()]
        for event in told:
            job = f"{task.run.dag_id}.{task.task_id}"
            if (event["job"]["name"], event["eventType"]) == (job, "COMPLETE"):
                return event
        time.sleep(0.2)
    raise AssertionError(f"no event of the end of {task} in {told}")


def test_a_training_tells_what_it_read_and_wrote_from_a_worker_and_from_a_triggerer(
    airflow: AirflowUnderTest, events: Path, tmp_path: Path
) -> None:
    source = f"""
with DAG(DAG_ID):
    for home in ("worker", "triggerer"):
        LearnerStatefulSetOperator(
            task_id=home,
            name=home,
            learners=1,
            image=TINY_IMAGE,
            command='echo 7 > "$RESULT_DIR/model"',
            cpus="20m",
            memory="32Mi",
            min_ready_seconds=0,
            training_data={{"type": "host_mount", "host_path": {str(tmp_path)!r}}},
            results={{"type": "host_mount", "host_path": {str(tmp_path / "out")!r}}},
            artifacts=["model"],
            deferrable=home == "triggerer",
        )
"""
    run = airflow.run(source)
    run.wait_for("success")
    for home in ("worker", "triggerer"):
        event = read_end(events, run.task(home))
        [read] = event["inputs"]
        written, model = event["outputs"]
        assert (read["namespace"], read["name"]) == ("file", str(tmp_path))
        assert (written["namespace"], written["name"]) == ("file", f"{tmp_path}/out/{home}")
        assert model["name"] == f"{tmp_path}/out/{home}/model"
        assert model["outputFacets"]["outputStatistics"]["size"] == 2
        assert len(model["facets"]["version"]["datasetVersion"]) == 64
