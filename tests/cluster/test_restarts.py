"""Workers and triggerers of a running Airflow die, freeze and come back; the training goes on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from dev.airflow import processes
from dev.airflow.access import Admin, build_connection
from dev.airflow.rest import Run, Task
from dev.airflow.settings import AirflowError
from tests.cluster.conftest import CONNECTION, AirflowUnderTest
from tests.cluster.proxy import Proxy, Request, name_in
from tests.cluster.test_endings import dag, log_of, wait_until_up


def steps(count: int) -> str:
    """A command that counts, five steps a second."""
    return f"for step in $(seq {count}); do echo step $step of {count}; sleep 0.2; done"


def wait_for_log(task: Task, words: str, *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while words not in log_of(task):
        assert time.monotonic() < deadline, task.describe()
        time.sleep(0.3)


def test_a_training_outlives_its_triggerers(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    run: Run = airflow.run(dag(train={"deferrable": True, "command": steps(400)}))
    task = run.task("train")
    wait_for_log(task, "[0] step 20 of 400")
    airflow.kill("triggerer", signal.SIGTERM)  # as a rollout does
    time.sleep(2)
    airflow.start("triggerer")
    wait_for_log(task, "Adopted StatefulSet")
    graceful = [line for line in task.read_log() if line.startswith("[0] step ")]
    assert graceful == [f"[0] step {n} of 400" for n in range(1, len(graceful) + 1)]

    airflow.start("triggerer-2")
    airflow.kill("triggerer", signal.SIGKILL)  # the other one takes over
    run.wait_for("success", timeout=150)
    outcome = task.read_xcom()
    assert [(row["exit_code"], row["restarts"]) for row in outcome["learners"]] == [(0, 0)] * 2
    for ordinal in (0, 1):
        seen = Counter(line for line in task.read_log() if line.startswith(f"[{ordinal}] step "))
        # What was not noted yet comes a second time, but nothing is lost.
        assert set(seen) == {f"[{ordinal}] step {n} of 400" for n in range(1, 401)}
        assert sum(seen.values()) <= 400 + 60
    wait_until_empty()


def test_a_triggerer_that_froze_and_wakes_beside_its_successor_does_no_harm(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    run: Run = airflow.run(dag(train={"deferrable": True, "command": steps(200)}))
    task = run.task("train")
    wait_for_log(task, "[0] step 5 of")
    airflow.suspend("triggerer")
    airflow.start("triggerer-2")
    wait_for_log(task, "Adopted StatefulSet")
    airflow.resume("triggerer")
    run.wait_for("success")
    assert "its training is left to whoever follows it now" in log_of(task)
    outcome = task.read_xcom()
    assert [(row["exit_code"], row["restarts"]) for row in outcome["learners"]] == [(0, 0)] * 2
    wait_until_empty()


# The requests that make a training, in order: method and last part of the path.
WRITES = {
    "set": ("POST", "statefulsets"),
    "service": ("POST", "services"),
    "scale": ("PATCH", None),
}


def test_a_worker_that_is_killed_at_any_moment_of_the_start_leaves_all_to_the_next_try(
    airflow: AirflowUnderTest,
    admin: Admin,
    namespace: str,
    wait_until_empty: Callable[[], None],
) -> None:
    points = [f"{when}-{what}" for what in WRITES for when in ("before", "after")]
    killed: set[str] = set()
    lock = threading.Lock()
    runs: list[Run] = []

    def kill(when: str, request: Request) -> int | None:
        for what, (method, kind) in WRITES.items():
            point = f"{when}-{what}"
            name = name_in(request) if request.is_write else ""
            path_fits = kind is None or request.path.endswith(kind)
            if request.method != method or not path_fits or name != point:
                continue
            with lock:
                if point in killed:
                    return None
                killed.add(point)
            os.kill(find_worker(airflow, runs[0].task(point)), signal.SIGKILL)
            return 503  # nobody hears it
        return None

    def after(request: Request) -> None:
        kill("after", request)

    with Proxy(admin.create_role_kubeconfig(namespace)) as proxy:
        proxy.before = lambda request: kill("before", request)
        proxy.after = after
        airflow.api.set_connection(build_connection(CONNECTION, proxy.kubeconfig))
        more = {"deferrable": False, "command": "echo done", "retries": 1, "env": {}}
        source = dag(**{point: more | {"name": point} for point in points})
        source = source.replace("task_id=", "retry_delay=datetime.timedelta(0), task_id=")
        runs.append(airflow.trigger(airflow.dag_file(source)))
        runs[0].wait_for("success", timeout=200)
    assert killed == set(points)
    for point in points:
        task = runs[0].task(point)
        assert task.read()["try_number"] == 2
        how = "Created" if point == "before-set" else "Adopted"
        assert f"{how} StatefulSet {namespace}/{point} with 2 learners" in log_of(task, 2)
        assert [row["exit_code"] for row in task.read_xcom()["learners"]] == [0, 0]
    wait_until_empty()


def find_worker(airflow: AirflowUnderTest, task: Task) -> int:
    """Find the process of a task; its pid is known to Airflow a moment after it has started."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return airflow.server.find_task_process(task)
        except (AirflowError, httpx.TransportError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def test_a_worker_that_lost_its_machine_leaves_the_training_to_the_next_try(
    airflow: AirflowUnderTest, admin: Any, namespace: str, wait_until_empty: Callable[[], None]
) -> None:
    source = dag(train={"deferrable": False, "command": steps(300), "retries": 1, "env": {}})
    source = source.replace("task_id=", "retry_delay=datetime.timedelta(0), task_id=")
    run: Run = airflow.run(source)
    task = run.task("train")
    wait_until_up(admin, namespace, learners=2)
    wait_for_log(task, "[0] step 20 of")
    supervisor = airflow.find_task_supervisor(task)
    for pid in (supervisor, airflow.find_task_process(task)):
        processes.send_signal(pid, signal.SIGKILL)
    run.wait_for("success", timeout=150)
    assert "Adopted StatefulSet" in log_of(task, 2)
    outcome = task.read_xcom()
    assert [(row["exit_code"], row["restarts"]) for row in outcome["learners"]] == [(0, 0)] * 2
    wait_until_empty()
