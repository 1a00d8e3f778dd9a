"""Workers and triggerers of a running Airflow die, freeze and come back; the training goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from airflow_learner_provider.training.naming import DATA_SECRET, FILES, PULL_SECRET
from dev.airflow import processes
from dev.airflow.access import Admin, build_connection
from dev.airflow.rest import Run, Task
from dev.airflow.settings import AirflowError
from tests.cluster.core import Gate
from tests.cluster.fixtures import CONNECTION, AirflowUnderTest
from tests.cluster.proxy import Proxy, Request, name_in
from tests.cluster.test_endings import dag, log_of

# Counts, five steps a second, until the test has seen enough.
COUNTING = """
step=0
until [ -e "$DATA_DIR/open" ]; do step=$((step + 1)); echo "step $step"; sleep 0.2; done
echo $step > "$LEARNER_RESULT_FILE"
"""


def counting(gate: Gate, **more: Any) -> dict[str, Any]:
    """Arguments of a training that counts until the gate is open."""
    return {"command": COUNTING, "training_data": gate.store, "env": {}} | more


def wait_for_log(task: Task, words: str, *, times: int = 1) -> None:
    deadline = time.monotonic() + 240
    while log_of(task).count(words) < times:
        assert time.monotonic() < deadline, task.describe()
        time.sleep(0.3)


def test_a_training_outlives_its_triggerers(
    airflow: AirflowUnderTest, gate: Gate, wait_until_empty: Callable[[], None]
) -> None:
    run: Run = airflow.run(dag(train=counting(gate, deferrable=True)))
    task = run.task("train")
    wait_for_log(task, "[0] step ", times=10)
    airflow.kill("triggerer", signal.SIGTERM)  # as a rollout does
    known = log_of(task).count("[0] step ")
    airflow.start("triggerer")
    wait_for_log(task, "Adopted StatefulSet")
    wait_for_log(task, "[0] step ", times=known + 10)
    graceful = [line for line in task.read_log() if line.startswith("[0] step ")]
    assert graceful == [f"[0] step {n}" for n in range(1, len(graceful) + 1)]

    airflow.start("triggerer-2")
    airflow.kill("triggerer", signal.SIGKILL)  # the other one takes over
    wait_for_log(task, "Adopted StatefulSet", times=2)
    gate.open()
    run.wait_for("success")
    learners = task.read_xcom()["learners"]
    assert [(row["exit_code"], row["restarts"]) for row in learners] == [(0, 0)] * 2
    for row in learners:
        mark, count = f"[{row['ordinal']}] step ", row["result"]
        seen = Counter(line for line in task.read_log() if line.startswith(mark))
        # What was not noted yet comes a second time, but nothing is lost.
        assert set(seen) == {f"{mark}{n}" for n in range(1, count + 1)}
        assert sum(seen.values()) <= count + 60
    wait_until_empty()


def test_a_triggerer_that_froze_and_wakes_and_a_worker_that_lost_its_machine_do_no_harm(
    airflow: AirflowUnderTest, gate: Gate, wait_until_empty: Callable[[], None]
) -> None:
    source = dag(
        deferred=counting(gate, deferrable=True),
        in_worker=counting(gate, deferrable=False, retries=1),
    )
    source = source.replace("task_id=", "retry_delay=datetime.timedelta(0), task_id=")
    run: Run = airflow.run(source)
    deferred, in_worker = run.task("deferred"), run.task("in_worker")
    for task in (deferred, in_worker):
        wait_for_log(task, "[0] step ", times=5)
    supervisor = airflow.find_task_supervisor(in_worker)
    for pid in (supervisor, airflow.find_task_process(in_worker)):
        processes.send_signal(pid, signal.SIGKILL)
    airflow.suspend("triggerer")
    airflow.start("triggerer-2")
    wait_for_log(deferred, "Adopted StatefulSet")
    airflow.resume("triggerer")
    wait_for_log(deferred, "its training is left to whoever follows it now")
    wait_for_log(in_worker, "Adopted StatefulSet")
    gate.open()
    run.wait_for("success")
    assert "Adopted StatefulSet" in log_of(in_worker, 2)
    for task in (deferred, in_worker):
        learners = task.read_xcom()["learners"]
        assert [(row["exit_code"], row["restarts"]) for row in learners] == [(0, 0)] * 2
    wait_until_empty()


# The requests that make a training, in order: method, last part of the path, what is put behind
# the training's name. Before the first and after each, a worker can have left something else.
WRITES = {
    "set": ("POST", "statefulsets", ""),
    "service": ("POST", "services", ""),
    "store": ("POST", "secrets", DATA_SECRET),
    "registry": ("POST", "secrets", PULL_SECRET),
    "files": ("POST", "configmaps", FILES),
    "scale": ("PATCH", "", ""),
}
POINTS = ("before-set", *(f"after-{what}" for what in WRITES))
# Has both Secrets. No node has the driver of its store, so the task is over when all is created.
WITH_SECRETS = {
    "training_data": {"type": "mount_cos", "bucket": "b", "conn_id": "killed_account"},
    "image_pull_conn_id": "killed_account",
    "wait_until": "created",
}
# Has a ConfigMap; its image has no Python, so the task is over when all is created.
FUNCTION = """
    arguments = {arguments!r}
    @task.learner(task_id="after-files", image=TINY_IMAGE, namespace=NAMESPACE, **arguments)
    def train():
        return 1
    train()
"""


def point_of(when: str, request: Request) -> str:
    """Name the point at which a request is, of those at which workers are killed."""
    if not request.is_write:
        return ""
    name = name_in(request)
    for what, (method, kind, suffix) in WRITES.items():
        point = f"{when}-{what}"
        path = request.path if kind else request.path.rpartition("/")[0]
        if (request.method, name) == (method, point + suffix) and path.endswith(kind):
            return point if point in POINTS else ""
    return ""


def test_a_worker_that_is_killed_at_any_moment_of_the_start_leaves_all_to_the_next_try(
    airflow: AirflowUnderTest,
    admin: Admin,
    namespace: str,
    wait_until_empty: Callable[[], None],
) -> None:
    killed: set[str] = set()
    lock = threading.Lock()
    runs: list[Run] = []

    def kill(when: str, request: Request) -> int | None:
        point = point_of(when, request)
        with lock:
            if not point or point in killed:
                return None
            killed.add(point)
        os.kill(find_worker(airflow, runs[0].task(point)), signal.SIGKILL)
        return 503  # nobody hears it

    def after(request: Request) -> None:
        kill("after", request)

    account = {"host": "registry.test", "login": "user", "password": "secret"}
    endpoint = json.dumps({"endpoint_url": "http://s3.test"})
    airflow.api.set_connection(
        {"connection_id": "killed_account", "conn_type": "aws", "extra": endpoint} | account
    )
    with Proxy(admin.create_role_kubeconfig(namespace)) as proxy:
        proxy.before = lambda request: kill("before", request)
        proxy.after = after
        airflow.api.set_connection(build_connection(CONNECTION, proxy.kubeconfig))
        more = {"deferrable": False, "command": "echo done", "retries": 1, "env": {}}
        tasks = {point: more | {"name": point} for point in POINTS}
        function = tasks.pop("after-files") | {"learners": 2, "wait_until": "created"}
        del function["command"]
        for point in ("after-store", "after-registry"):
            tasks[point] |= WITH_SECRETS
        source = dag(**tasks) + FUNCTION.format(arguments=function)
        source = source.replace("task_id=", "retry_delay=datetime.timedelta(0), task_id=")
        runs.append(airflow.trigger(airflow.dag_file(source)))
        runs[0].wait_for("success")
    assert killed == set(POINTS)
    owned = {
        point: ("secrets", [point + DATA_SECRET, point + PULL_SECRET])
        for point in ("after-store", "after-registry")
    } | {"after-files": ("configmaps", ["after-files" + FILES])}
    for point in POINTS:
        task = runs[0].task(point)
        assert task.read()["try_number"] == 2
        how = "Created" if point == "before-set" else "Adopted"
        assert f"{how} StatefulSet {namespace}/{point} with 2 learners" in log_of(task, 2)
        if point not in owned:
            assert [row["exit_code"] for row in task.read_xcom()["learners"]] == [0, 0]
            continue
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{point}"
        stateful_set = admin.request("GET", path)
        assert stateful_set["spec"]["replicas"] == 2
        kind, names = owned[point]
        found = admin.request("GET", f"/api/v1/namespaces/{namespace}/{kind}")["items"]
        uid = stateful_set["metadata"]["uid"]
        assert [
            each["metadata"]["name"]
            for each in found
            if [owner["uid"] for owner in each["metadata"].get("ownerReferences", ())] == [uid]
        ] == names
        admin.request("DELETE", path)
    wait_until_empty()


def find_worker(airflow: AirflowUnderTest, task: Task) -> int:
    """Find the process of a task; its pid is known to Airflow a moment after it has started."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return airflow.server.find_task_process(task)
        except (AirflowError, httpx.TransportError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)
