"""The Airflow that the tests run on can be broken and mended piece by piece, as tests need it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from dev.airflow.settings import AirflowError
from tests.cluster.fixtures import AirflowUnderTest

DEFERS = """
from datetime import timedelta
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator

class Defers(BaseOperator):
    def execute(self, context):
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=5)), method_name="resume")

    def resume(self, context, event):
        return "resumed"

with DAG(DAG_ID):
    Defers(task_id="defers")
"""
SLEEPS = """
import time

with DAG(DAG_ID):
    @task
    def sleeps():
        time.sleep(600)

    sleeps()
"""


def test_a_deferral_outlives_its_triggerer(airflow: AirflowUnderTest) -> None:
    task = airflow.run(DEFERS).task("defers")
    task.wait_for("deferred")
    airflow.kill("triggerer", signal.SIGKILL)
    assert airflow.find_processes("triggerer") == []

    airflow.start("triggerer-2")
    task.wait_for("success")
    assert task.read_xcom() == "resumed"


def test_what_was_broken_is_mended(airflow: AirflowUnderTest) -> None:
    airflow.kill("scheduler", signal.SIGTERM)
    airflow.suspend("dag-processor")
    airflow.mend()

    task = airflow.run(DEFERS).task("defers")
    task.wait_for("success")


def test_a_task_is_found_by_its_processes(airflow: AirflowUnderTest) -> None:
    task = airflow.run(SLEEPS).task("sleeps")
    task.wait_for("running")
    pid = airflow.find_task_process(task)
    assert airflow.find_task_supervisor(task) in airflow.find_processes("scheduler")

    os.kill(pid, signal.SIGKILL)
    task.wait_for("failed")
    with pytest.raises(AirflowError, match="does not run"):
        airflow.find_task_process(task)


def test_a_stopped_run_ends_its_tasks(airflow: AirflowUnderTest) -> None:
    run = airflow.run(SLEEPS)
    run.task("sleeps").wait_for("running")
    pid = airflow.find_task_process(run.task("sleeps"))
    run.stop()

    deadline = time.monotonic() + 30
    while pid in airflow.find_processes():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_broken_dag_file_is_told_at_once(airflow: AirflowUnderTest) -> None:
    with pytest.raises(AirflowError, match="ZeroDivisionError"):
        airflow.dag_file("1 / 0")
