"""Many short trainings in a real Airflow while workers and triggerers die: all verdicts are right.

    python -m benchmarks.soak --trainings 200 --seed 1

A third of the trainings is made to fail, each in a way of its own; tasks are killed and triggerers
restarted meanwhile. It runs on KUBECONFIG's cluster, or on the local one, which it starts. At the
end every task has to have the verdict that its plan says, and nothing may be left in the namespace.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import httpx
from kubernetes.client import ApiException

from benchmarks.soak_plan import DEEDS, KILLS, Plan, build_plans
from dev.airflow import processes
from dev.airflow.access import Admin, build_connection
from dev.airflow.rest import ENDED_RUN, Run, Task
from dev.airflow.server import Airflow
from dev.airflow.settings import AirflowError

Json = dict[str, Any]

AT_ONCE = 12  # trainings
LOOK_SECONDS = 0.5
SAY_SECONDS = 15
STUCK_SECONDS = 400
EMPTY_SECONDS = 90
# Airflow has to have told the trigger of a click before its triggerer may go.
TOLD_SECONDS = 60
DAG_ID = "soak"
DAG_SOURCE = """\
import json
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG
from airflow_learner_provider.operators import LearnerStatefulSetOperator

with DAG("soak", schedule=None):
    for arguments in json.loads(Path(__file__).with_suffix(".json").read_text()):
        limit = arguments.pop("execution_timeout", None)
        LearnerStatefulSetOperator(
            pool="soak",
            retry_delay=timedelta(0),
            execution_timeout=limit and timedelta(seconds=limit),
            **arguments,
        )
"""


def main() -> int:
    """Run it, and return 0 when all verdicts are right and nothing is left."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trainings", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    image = os.environ.get("LEARNER_TINY_IMAGE", "localhost/alp/tiny:1")
    plans = build_plans(arguments.trainings, arguments.seed, image)
    namespace = f"soak-{uuid.uuid4().hex[:8]}"
    with (
        closing(Admin(find_cluster())) as admin,
        tempfile.TemporaryDirectory(prefix="soak-") as home,
        Airflow(Path(home)) as airflow,
    ):
        admin.prepare_namespace(namespace)
        try:
            kubeconfig = admin.create_role_kubeconfig(namespace)
            airflow.api.set_connection(build_connection("kubernetes_default", kubeconfig))
            soak = Soak(airflow, admin, namespace, plans, Random(arguments.seed))  # noqa: S311
            return soak.run(f"seed {arguments.seed}")
        finally:
            admin.delete_namespace(namespace)


def find_cluster() -> Path:
    """Return the kubeconfig of the cluster to use."""
    if path := os.environ.get("KUBECONFIG"):
        return Path(path).resolve()
    command = [sys.executable, "-m", "dev.cluster", "up"]
    started = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Path(started.stdout.strip().splitlines()[-1])


class Soak:
    """One run of all trainings, side by side, and what is done to them."""

    def __init__(
        self, airflow: Airflow, admin: Admin, namespace: str, plans: list[Plan], random: Random
    ) -> None:
        self._airflow = airflow
        self._admin = admin
        self._namespace = namespace
        self._plans = {plan.name: plan for plan in plans}
        self._random = random
        self._began = time.monotonic()
        self._since: dict[str, float] = {}  # when a deed could first be done
        self._done: dict[str, float] = {}  # when it was
        self._counts: Counter[str] = Counter()
        self._judged: dict[str, tuple[int, str]] = {}  # try, and what is wrong
        self._clicked: dict[str, float] = {}
        self._triggerer = threading.Lock()  # held while it has to be up
        self._is_over = threading.Event()

    def run(self, title: str) -> int:
        """Run all to their ends; print how it goes, and one line of summary."""
        run = self._start()
        restarts = threading.Thread(target=self._restart_triggerers)
        restarts.start()
        try:
            ended = self._watch(run)
        finally:
            self._is_over.set()
            restarts.join()
        left = self._wait_until_empty()
        wrong = [name for name, (_, error) in self._judged.items() if error]
        right = len(self._judged) - len(wrong)
        deeds = sum(self._counts[deed] for deed in (*DEEDS, "mark failed", "mark success", "clear"))
        failing = sum(plan.verdict.state == "failed" for plan in self._plans.values())
        print(
            f"soak, {title}: {len(self._plans)} trainings in {self._seconds():.0f} s, "
            f"{failing} of them planned to fail, {sum(self._counts[kill] for kill in KILLS)} tasks"
            f" killed, {deeds} trainings disturbed, {self._counts['restart']} triggerers restarted:"
            f" {right} right verdicts, {len(wrong)} wrong, {len(left)} objects left",
            flush=True,
        )
        return 0 if ended and right == len(self._plans) and not left else 1

    def _start(self) -> Run:
        api = self._airflow.api
        pool = {"name": "soak", "slots": AT_ONCE, "include_deferred": True}
        api.request("POST", "/pools", json=pool)
        arguments = [plan.arguments | {"namespace": self._namespace} for plan in self._list_plans()]
        self._airflow.dags.joinpath("soak.json").write_text(json.dumps(arguments))
        self._airflow.dags.joinpath("soak.py").write_text(DAG_SOURCE)
        self._airflow.wait_for_dag(DAG_ID)
        return api.trigger(DAG_ID)

    def _list_plans(self) -> list[Plan]:
        return list(self._plans.values())

    def _watch(self, run: Run) -> bool:
        """Do what the plans say until all tasks have ended; False when they are stuck."""
        said = moved = time.monotonic()
        while True:
            state = run.read_state()
            judged = len(self._judged)
            states = self._look_at_all(run)
            if state in ENDED_RUN and len(self._judged) == len(self._plans):
                return True
            now = time.monotonic()
            if len(self._judged) > judged:
                moved = now
            if now - said > SAY_SECONDS:
                said = now
                self._say(states)
            if now - moved > STUCK_SECONDS:
                for name in self._plans.keys() - self._judged.keys():
                    print(f"stuck: {self._plans[name]}\n{run.task(name).describe()}")
                return False
            time.sleep(LOOK_SECONDS)

    def _look_at_all(self, run: Run) -> Counter[str]:
        """Do what is due, and count the tasks by their states."""
        instances = {found["task_id"]: found for found in run.list_instances()}
        pods = self._read_pods()
        self._allow_restart(pods)
        for name, found in instances.items():
            self._look(self._plans[name], found, run.task(name), pods.get(name, []))
        return Counter(str(found["state"]) for found in instances.values())

    def _say(self, states: Counter[str]) -> None:
        wrong = sum(bool(error) for _, error in self._judged.values())
        now = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
        done = ", ".join(f"{n} x {what}" for what, n in self._counts.items())
        print(f"[{self._seconds():5.0f} s] {wrong} wrong; {now}; done: {done}", flush=True)

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _look(self, plan: Plan, found: Json, task: Task, pods: list[Json]) -> None:
        if found["state"] in {"success", "failed"}:
            if self._judged.get(plan.name, (0, ""))[0] != found["try_number"]:
                error = self._judge(plan, found["state"], task)
                self._judged[plan.name] = found["try_number"], error
                if error:
                    where = ", ".join(f"{key}={found[key]}" for key in ("try_number", "duration"))
                    print(f"WRONG: {error}\n{plan}\n{where}\n{task.describe()}", flush=True)
            return
        if not plan.deed or (plan.name in self._done and not plan.is_repeated):
            return
        if plan.deed in KILLS:
            can_be_done = found["state"] == "running"
        else:
            can_be_done = is_up(pods, plan.arguments["learners"])
        now = time.monotonic()
        if not can_be_done or now - self._done.get(plan.name, 0) < 15:
            return
        if now - self._since.setdefault(plan.name, now) >= plan.delay and self._do(plan, task):
            self._done[plan.name] = now
            self._counts[plan.deed] += 1

    def _do(self, plan: Plan, task: Task) -> bool:
        """Do something to a task or a training; False when it was not there any more."""
        try:
            if plan.deed in KILLS:
                return self._kill(plan.deed, task)
            if plan.deed == "clear":
                task.clear()
            elif plan.deed.startswith("mark"):
                return self._mark(plan, task)
            else:
                self._disturb(plan)
        except (AirflowError, httpx.TransportError, FileNotFoundError):
            return False
        except ApiException as e:
            if e.status not in {404, 409}:
                raise
            return False
        return True

    def _kill(self, deed: str, task: Task) -> bool:
        process = self._airflow.find_task_process(task)
        supervisor = processes.read_parent(process)
        if deed == "terminate process":
            processes.send_signal(process, signal.SIGTERM)
            return True
        for pid in {"kill process": [process], "kill supervisor": [supervisor]}.get(
            deed, [supervisor, process]
        ):
            processes.send_signal(pid, signal.SIGKILL)
        return True

    def _mark(self, plan: Plan, task: Task) -> bool:
        # A trigger that does not run when its task is ended by hand is never told.
        if not self._clicked and not self._triggerer.acquire(blocking=False):
            return False
        self._clicked[plan.name] = time.monotonic()
        task.set_state(plan.deed.partition(" ")[2])
        return True

    def _allow_restart(self, pods: dict[str, list[Json]]) -> None:
        if not self._clicked:
            return
        now = time.monotonic()
        for name, since in list(self._clicked.items()):
            if name not in pods or now - since > TOLD_SECONDS:
                del self._clicked[name]
        if not self._clicked:
            self._triggerer.release()

    def _disturb(self, plan: Plan) -> None:
        pods = f"/api/v1/namespaces/{self._namespace}/pods/{plan.name}-{plan.ordinal}"
        sets = f"/apis/apps/v1/namespaces/{self._namespace}/statefulsets/{plan.name}"
        if plan.deed == "evict pod":
            kind = {"apiVersion": "policy/v1", "kind": "Eviction"}
            body: Json = kind | {"metadata": {"name": f"{plan.name}-{plan.ordinal}"}}
            self._admin.request("POST", f"{pods}/eviction", body=body)
        elif plan.deed == "delete StatefulSet":
            self._admin.request("DELETE", sets)
        elif plan.deed.startswith("scale"):
            wanted = 0 if plan.deed == "scale to zero" else plan.arguments["learners"] + 1
            self._admin.request(
                "PATCH",
                sets,
                body={"spec": {"replicas": wanted}},
                content_type="application/merge-patch+json",
            )
        else:
            body = {"gracePeriodSeconds": 0} if plan.deed == "delete pod at once" else {}
            self._admin.request("DELETE", pods, body=body)

    def _read_pods(self) -> dict[str, list[Json]]:
        """Return the pods of each training."""
        pods: dict[str, list[Json]] = {}
        for pod in self._admin.request("GET", f"/api/v1/namespaces/{self._namespace}/pods")[
            "items"
        ]:
            pods.setdefault(pod["metadata"]["name"].rpartition("-")[0], []).append(pod)
        return pods

    def _restart_triggerers(self) -> None:
        ended, pause = 0, 30.0
        while not self._is_over.wait(pause):
            if len(self._judged) == ended:
                continue  # the last one has not come to anything yet
            ended = len(self._judged)
            with self._triggerer:
                began = time.monotonic()
                self._airflow.kill(
                    "triggerer", self._random.choice((signal.SIGTERM, signal.SIGKILL))
                )
                time.sleep(self._random.uniform(0, 4))
                self._airflow.start("triggerer")
                self._counts["restart"] += 1
            # It is down for a part of the time only, however slow the machine is.
            pause = self._random.uniform(2, 5) * (time.monotonic() - began)

    def _judge(self, plan: Plan, state: str, task: Task) -> str:
        """Say what is wrong with a task's end; empty when nothing is."""
        verdict = plan.verdict
        if state != verdict.state:
            return f"{plan.name} is {state}, not {verdict.state}"
        if state == "success" and plan.deed != "mark success":
            outcome = task.read_xcom() or {}
            codes = [row["exit_code"] for row in outcome.get("learners", ())]
            result = outcome.get("phase"), outcome.get("result"), codes
            wanted = "Succeeded", {"training": int(plan.name[1:])}, [0] * len(codes)
            return "" if result == wanted else f"{plan.name} returned {outcome}"
        if verdict.reasons:
            outcome = task.read_xcom("outcome") or {}
            message, reason = outcome.get("message", ""), outcome.get("reason")
            is_right = reason in verdict.reasons and verdict.words in message
            return "" if is_right else f"{plan.name} failed for {reason}: {message}"
        is_right = verdict.words in "\n".join(task.read_log())
        return "" if is_right else f"{plan.name} does not say {verdict.words}"

    def _wait_until_empty(self) -> list[str]:
        deadline = time.monotonic() + EMPTY_SECONDS
        while left := self._admin.list_leftovers(self._namespace):
            if time.monotonic() > deadline:
                print("\n".join(["left:", *left]))
                return left
            time.sleep(1)
        return []


def is_up(pods: list[Json], learners: int) -> bool:
    """Tell whether all learners run."""
    return sum(_runs(pod) for pod in pods) == learners


def _runs(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and any(
        status["name"] == "learner" and "running" in status["state"]
        for status in pod["status"].get("containerStatuses") or ()
    )


if __name__ == "__main__":
    sys.exit(main())
