"""How a training ends in a running Airflow when a user, a limit or a signal ends it."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import Any

from dev.airflow.rest import Run, Task
from tests.cluster.core import Gate
from tests.cluster.fixtures import AirflowUnderTest

# Ends by itself only in a second try, and takes its time when it is told to.
STUBBORN = """
trap 'sleep 2; exit 0' TERM
echo up in try $TRY
[ $TRY = 2 ] && exit
while :; do sleep 0.1; done
"""


def dag(**tasks: dict[str, Any]) -> str:
    """Source of a DAG with a training for each keyword: small ones, with STUBBORN learners."""
    common: dict[str, Any] = {
        "learners": 2,
        "command": STUBBORN,
        "env": {"TRY": "{{ ti.try_number }}"},
        "cpus": "20m",
        "memory": "64Mi",
        "ready_timeout": 300,
    }
    lines = [
        f"    LearnerStatefulSetOperator(task_id={name!r}, image=TINY_IMAGE, namespace=NAMESPACE, "
        f"**{common | more!r})"
        for name, more in tasks.items()
    ]
    return "\n".join(["import datetime", "with DAG(DAG_ID, schedule=None):", *lines])


def wait_until_up(admin: Any, namespace: str, *, learners: int, seconds: float = 240) -> None:
    """Wait until as many learners are ready."""
    deadline = time.monotonic() + seconds
    while count_ready(admin, namespace) < learners:
        assert time.monotonic() < deadline, "the learners do not start"
        time.sleep(0.3)


def count_ready(admin: Any, namespace: str) -> int:
    pods = admin.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sum(
        any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])
        for pod in pods
        if "conditions" in pod["status"]
    )


def seconds_of(task: Task) -> float:
    found = task.read()
    start, end = (datetime.fromisoformat(found[key]) for key in ("start_date", "end_date"))
    return (end - start).total_seconds()


def log_of(task: Task, try_number: int | None = None) -> str:
    return "\n".join(task.read_log(try_number))


def test_whoever_ends_or_clears_a_task_ends_its_training(
    airflow: AirflowUnderTest, admin: Any, namespace: str, wait_until_empty: Callable[[], None]
) -> None:
    deferred = ("failed", "success", "cleared", "given_up")
    in_worker = ("terminated", "failed_in_worker", "cleared_in_worker")
    run: Run = airflow.run(
        dag(
            **{name: {"deferrable": True} for name in deferred},
            **{name: {"deferrable": False} for name in in_worker},
        )
    )
    wait_until_up(admin, namespace, learners=14)
    end_deferral(airflow, run.task("given_up"))
    os.kill(airflow.find_task_process(run.task("terminated")), signal.SIGTERM)
    for name in ("failed", "failed_in_worker"):
        run.task(name).set_state("failed")
    run.task("success").set_state("success")
    for name in ("cleared", "cleared_in_worker"):
        run.task(name).clear()
    run.wait_for("failed")
    states = {name: run.task(name).read_state() for name in (*deferred, *in_worker)}
    assert states == {
        "failed": "failed",
        "success": "success",
        "cleared": "success",
        "given_up": "failed",
        "terminated": "failed",
        "failed_in_worker": "failed",
        "cleared_in_worker": "success",
    }
    cleared = run.task("cleared").read_xcom()
    assert [row["exit_code"] for row in cleared["learners"]] == [0, 0]
    assert "[0] up in try 2" in log_of(run.task("cleared"), 2)
    assert "TaskDeferralTimeout" in log_of(run.task("given_up"))
    assert "TrainingKilledError" in log_of(run.task("terminated"))
    assert "its objects are deleted" in log_of(run.task("terminated"))
    wait_until_empty()


def end_deferral(airflow: AirflowUnderTest, task: Task) -> None:
    """Let the time be over for which Airflow lets a task be deferred."""
    with closing(sqlite3.connect(airflow.home / "airflow.db", timeout=30)) as database, database:
        database.execute(
            "UPDATE task_instance SET trigger_timeout = '2026-01-01 00:00:00.000000' "
            "WHERE dag_id = ? AND task_id = ? AND state = 'deferred'",
            (task.run.dag_id, task.task_id),
        )


def test_a_dag_that_is_paused_or_deleted_while_its_task_is_deferred(
    *,
    airflow: AirflowUnderTest,
    admin: Any,
    namespace: str,
    gate: Gate,
    wait_until_empty: Callable[[], None],
) -> None:
    ends = {"command": gate.wait, "training_data": gate.store}
    paused: Run = airflow.run(dag(train={"deferrable": True} | ends))
    deleted: Run = airflow.run(dag(train={"deferrable": True}))
    wait_until_up(admin, namespace, learners=4)
    airflow.api.pause(paused.dag_id)
    airflow.files.pop().unlink()
    airflow.api.delete_dag(deleted.dag_id)
    airflow.runs.remove(deleted)
    gate.open()
    wait_until_empty()  # the training of the paused DAG ends by itself
    airflow.api.unpause(paused.dag_id)
    paused.wait_for("success")
    assert paused.task("train").read_xcom()["phase"] == "Succeeded"


def test_execution_timeout_counts_from_the_start_of_the_task_in_both_modes(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    source = dag(worker={"deferrable": False}, triggerer={"deferrable": True})
    limit = "execution_timeout=datetime.timedelta(seconds=12), task_id="
    run: Run = airflow.run(source.replace("task_id=", limit))
    run.wait_for("failed")
    for name in ("worker", "triggerer"):
        task = run.task(name)
        assert seconds_of(task) >= 12
        log = log_of(task)
        assert "TrainingTimeoutError" in log
        said = r"had not ended after (\d+) s, when the task's execution_timeout was over "
        [ran] = set(re.findall(said + r"\[ExecutionTimeout\]\. Raise execution", log))
        assert int(ran) <= 12  # from the start of its learners
        assert task.read_xcom("outcome")["reason"] == "ExecutionTimeout"
    wait_until_empty()


def test_two_runs_of_a_dag_with_mapped_tasks_train_side_by_side(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    said = "$LEARNER_ORDINAL of $NUM_LEARNERS at ${FIRST_LEARNER%%.*}"
    source = f"""
with DAG(DAG_ID, schedule=None):
    LearnerStatefulSetOperator.partial(
        task_id="train", image=TINY_IMAGE, namespace=NAMESPACE, learners=2, deferrable=True,
        cpus="20m", memory="64Mi", command='echo "{said}"; printf $WHICH > $LEARNER_RESULT_FILE',
    ).expand(env=[{{"WHICH": "a"}}, {{"WHICH": "b"}}])
"""
    dag_id = airflow.dag_file(source)
    runs = [airflow.trigger(dag_id) for _ in range(2)]
    for run in runs:
        run.wait_for("success")
    tasks = [run.task("train", index) for run in runs for index in (0, 1)]
    outcomes = [task.read_xcom() for task in tasks]
    assert [outcome["result"] for outcome in outcomes] == ["a", "b"] * 2
    assert len({outcome["name"] for outcome in outcomes}) == 4
    for task, outcome in zip(tasks, outcomes, strict=True):
        for ordinal in (0, 1):
            assert f"[{ordinal}] {ordinal} of 2 at {outcome['name']}-0" in log_of(task)
    wait_until_empty()
