"""The example DAGs as users run them: scheduler, dag processor, triggerer, and a real cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.airflow.rest import Run, Task
from tests.cluster.fixtures import AirflowUnderTest

DAGS = Path(__file__).parents[2] / "dags"
RUN_SECONDS = 400

pytestmark = pytest.mark.usefixtures("digits_image")


def assert_log_has_both_learners(task: Task) -> None:
    log = task.read_log()
    for ordinal in (0, 1):
        pattern = rf"\[{ordinal}\] epoch +1  loss [0-9.]+  accuracy [0-9.]+"
        assert any(re.search(pattern, line) for line in log), "\n".join(log)


def assert_trained(task: Task, *, epochs: int) -> None:
    outcome = task.read_xcom()
    assert outcome["phase"] == "Succeeded"
    assert outcome["result"]["epochs"] == epochs
    assert outcome["result"]["accuracy"] > 0.8
    assert [row["ordinal"] for row in outcome["learners"]] == [0, 1]
    assert [row["exit_code"] for row in outcome["learners"]] == [0, 0]
    assert outcome["timings"]["run"] > 0
    assert [point["step"] for point in outcome["curve"]] == [*range(1, epochs + 1)]
    assert_log_has_both_learners(task)


def test_the_pipeline_trains_and_publishes_a_model(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    dag_id = airflow.copy_dag_file(DAGS / "train_digits_pipeline.py")
    run = airflow.trigger(dag_id, {"epochs": 3})
    run.wait_for("success", timeout=RUN_SECONDS)

    assert run.task("preprocess").read_xcom()["result"]["train"] == 1438
    assert_trained(run.task("train"), epochs=3)
    evaluation = run.task("evaluate").read_xcom()["result"]
    assert evaluation["accuracy"] > 0.9
    (event,) = airflow.api.list_asset_events(run)
    training = run.task("train").read_xcom()
    assert (
        event["extra"].items()
        >= {
            "model": training["result"]["model"],
            "accuracy": evaluation["accuracy"],
            "loss": training["result"]["loss"],
            "epochs": 3,
            "learners": 2,
            "gpu_seconds": 0,
        }.items()
    )
    wait_until_empty()


def test_a_model_that_is_not_good_enough_is_not_published(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    dag_id = airflow.copy_dag_file(DAGS / "train_digits_pipeline.py")
    run = airflow.trigger(dag_id, {"epochs": 1})
    run.wait_for("failed", timeout=RUN_SECONDS)

    assert run.task("train").read_state() == "success"
    evaluate = run.task("evaluate")
    assert evaluate.read_state() == "failed"
    assert any("the model is not good enough: 0.8" in line for line in evaluate.read_log())
    assert run.task("publish").read_state() == "upstream_failed"
    assert airflow.api.list_asset_events(run) == []
    wait_until_empty()


def test_the_schedule_starts_a_training_for_the_last_day_only(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    dag_id = airflow.copy_dag_file(DAGS / "train_on_schedule.py")
    run = wait_for_scheduled_run(airflow, dag_id)
    run.wait_for("success", timeout=RUN_SECONDS)

    assert_trained(run.task("train"), epochs=3)
    assert [other.run_id for other in airflow.api.list_runs(dag_id)] == [run.run_id]
    wait_until_empty()


def wait_for_scheduled_run(airflow: AirflowUnderTest, dag_id: str) -> Run:
    run: Run = airflow.wait_for_run(dag_id)
    assert run.run_id.startswith("scheduled__")
    airflow.runs.append(run)
    return run


def test_the_form_decides_how_to_train(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    dag_id = airflow.copy_dag_file(DAGS / "train_from_form.py")
    entered = {"learners": 2, "memory": "768Mi", "epochs": 2, "learning_rate": 0.05}
    run = airflow.trigger(dag_id, entered)
    run.wait_for("success", timeout=RUN_SECONDS)

    assert_trained(run.task("train"), epochs=2)
    wait_until_empty()


def test_the_form_refuses_what_is_out_of_bounds(airflow: AirflowUnderTest) -> None:
    dag_id = airflow.copy_dag_file(DAGS / "train_from_form.py")
    body = {"logical_date": None, "conf": {"learners": 9}}
    answer = airflow.api.send("POST", f"/dags/{dag_id}/dagRuns", json=body)
    assert answer.status_code == 400
    assert "9 is greater than the maximum of 8" in answer.text


def test_a_launched_training_is_waited_for_and_removed(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    dag_id = airflow.copy_dag_file(DAGS / "launch_then_wait.py")
    run = airflow.trigger(dag_id)
    run.wait_for("success", timeout=RUN_SECONDS)

    name = run.task("launch").read_xcom()["name"]
    completed = run.task("wait_until_completed").read_xcom()
    assert completed["name"] == name
    assert completed["phase"] == "Succeeded"
    assert completed["result"]["epochs"] == 3
    states = {task.task_id: task.read_state() for task in run.list_tasks()}
    assert set(states.values()) == {"success"}, states
    wait_until_empty()
