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
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=1)), method_name="resume")

    def resume(self, context, event):
        return "resumed"

with DAG(DAG_ID):
    Defers(task_id="defers")
"""
SLEEPS = """
import time

with DAG(DAG_ID):
    @task
    def sleeps(seconds):
        time.sleep(seconds)

    sleeps.expand(seconds=[600, 600])
"""


def test_what_was_broken_is_mended(airflow: AirflowUnderTest) -> None:
    for component in ("triggerer", "scheduler"):
        airflow.kill(component)
        assert airflow.find_processes(component) == []
    airflow.suspend("dag-processor")
    airflow.mend()

    task = airflow.run(DEFERS).task("defers")
    task.wait_for("success")
    assert task.read_xcom() == "resumed"


def test_tasks_are_found_by_their_processes_and_end_with_their_run(
    airflow: AirflowUnderTest,
) -> None:
    run = airflow.run(SLEEPS)
    killed, stopped = (run.task("sleeps", index) for index in (0, 1))
    for task in (killed, stopped):
        task.wait_for("running")
        assert airflow.find_task_supervisor(task) in airflow.find_processes("scheduler")
    pid = airflow.find_task_process(stopped)
    os.kill(airflow.find_task_process(killed), signal.SIGKILL)
    killed.wait_for("failed")
    with pytest.raises(AirflowError, match="does not run"):
        airflow.find_task_process(killed)

    run.stop()
    deadline = time.monotonic() + 120
    while pid in airflow.find_processes():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_broken_dag_file_is_told_at_once(airflow: AirflowUnderTest) -> None:
    with pytest.raises(AirflowError, match="ZeroDivisionError"):
        airflow.dag_file("1 / 0")
