"""A whole task on a running Airflow, from queued to success, beside what does the same."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from benchmarks.frame import Benchmark, Effort, Row, find_cluster, median, say
from benchmarks.timeline import PHASES, read_moments
from dev.airflow.access import SERVICE_ACCOUNT, Admin, build_connection
from dev.airflow.rest import ENDED_TASK, Task
from dev.airflow.server import Airflow
from dev.airflow.settings import AirflowError

_WORK_SECONDS = 5
_COMMAND = (
    "echo begin $EPOCHREALTIME; "
    f"for step in $(seq {_WORK_SECONDS}); do echo step $step; sleep 1; done; "
    "echo end $EPOCHREALTIME"
)
_POLL_SECONDS = 0.2
_TASK_SECONDS = 240
_OURS, _OURS_DEFERRED = "bench_learner", "bench_learner_deferrable"
_POD, _POD_DEFERRED, _JOB = "bench_pod", "bench_pod_deferrable", "bench_job_deferrable"
# What is measured, by its DAG.
_SUBJECTS = {
    _OURS: "LearnerStatefulSetOperator",
    _OURS_DEFERRED: "LearnerStatefulSetOperator, deferrable",
    "bench_learner_deferrable_asset": "the same with an outlet, so that it ends in a worker",
    _POD: "KubernetesPodOperator (one pod)",
    _POD_DEFERRED: "KubernetesPodOperator, deferrable (one pod)",
    _JOB: "KubernetesJobOperator, deferrable",
    "bench_empty": "a task that does nothing",
    "bench_empty_deferrable": "a deferral that does nothing",
}


@dataclass(frozen=True)
class _Sample:
    """A task that was run.

    :param moments: when its phases began, and when the last one ended.
    """

    moments: Sequence[float]

    @property
    def seconds(self) -> float:
        return self.moments[-1] - self.moments[0]


def measure(effort: Effort) -> list[Row]:
    """Run each subject's task, one after the other in turn."""
    samples: dict[str, list[_Sample]] = {dag_id: [] for dag_id in _SUBJECTS}
    with _run_airflow() as airflow:
        for dag_id in _SUBJECTS:
            airflow.wait_for_dag(dag_id, timeout=120)
        say("warming up: all tasks once")
        for run in [airflow.api.trigger(dag_id) for dag_id in _SUBJECTS]:
            run.wait_for("success", "failed", timeout=_TASK_SECONDS)
        for number in range(effort.choose(3, 1)):
            for dag_id, name in _SUBJECTS.items():
                samples[dag_id].append(_run_once(airflow, dag_id))
                say(f"round {number + 1}: {samples[dag_id][-1].seconds:5.1f} s  {name}")
    return [*_build_totals(samples), *_build_bars(samples), *_build_phases(samples)]


@contextmanager
def _run_airflow() -> Iterator[Airflow]:
    """Give an Airflow with the benchmark's DAGs, and all rights in a namespace for a while."""
    namespace = f"bench-{uuid.uuid4().hex[:8]}"
    environment = {
        "BENCH_NAMESPACE": namespace,
        "BENCH_IMAGE": os.environ.get("LEARNER_TINY_IMAGE", "localhost/alp/tiny:1"),
        "BENCH_COMMAND": _COMMAND,
        # The peers' files can take longer than the usual 30 s to import on a busy machine.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "240",
    }
    dags = Path(__file__).parent / "dags"
    with (
        closing(Admin(find_cluster())) as admin,
        tempfile.TemporaryDirectory(prefix="bench-airflow-") as home,
        Airflow(Path(home), dags=dags, environment=environment) as airflow,
    ):
        admin.prepare_namespace(namespace)
        try:
            admin.apply(_build_role_binding(namespace), namespace=namespace)
            kubeconfig = admin.create_role_kubeconfig(namespace)
            airflow.api.set_connection(build_connection("kubernetes_default", kubeconfig))
            yield airflow
        finally:
            admin.delete_namespace(namespace)


def _build_role_binding(namespace: str) -> dict[str, object]:
    """Give all rights in the namespace: the peers need others than we do."""
    account = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "bench", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [account],
    }


def _run_once(airflow: Airflow, dag_id: str) -> _Sample:
    """Run a task; once more if Airflow loses it, as it may when a deferral is very short."""
    for _ in range(3):
        task = airflow.api.trigger(dag_id).task("work")
        queued, state, done = _watch(task)
        if state == "success":
            return _Sample(read_moments(task.read_log_entries(), queued=queued, done=done))
        say(f"{dag_id} is {state}")
    raise AirflowError(task.describe())


def _watch(task: Task) -> tuple[float, str, float]:
    """Wait for the end; return when it was queued first, how it ended, and when."""
    queued: list[float] = []  # the one that Airflow keeps is that of the last time
    deadline = time.monotonic() + _TASK_SECONDS
    while time.monotonic() < deadline:
        found = task.read()
        if found["queued_when"]:
            queued.append(_read_time(found["queued_when"]))
        if found["state"] in ENDED_TASK:
            return min(queued), found["state"], _read_time(found["end_date"])
        time.sleep(_POLL_SECONDS)
    raise AirflowError(f"not ended after {_TASK_SECONDS} s: {task.describe()}")


def _read_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _compute_overhead(samples: Mapping[str, Sequence[_Sample]], dag_id: str) -> float:
    work = 0 if "empty" in dag_id else _WORK_SECONDS
    return median([sample.seconds for sample in samples[dag_id]]) - work


def _build_totals(samples: Mapping[str, Sequence[_Sample]]) -> list[Row]:
    return [
        Row(
            name,
            {
                "seconds": median([sample.seconds for sample in samples[dag_id]]),
                "overhead, seconds": _compute_overhead(samples, dag_id),
            },
        )
        for dag_id, name in _SUBJECTS.items()
    ]


def _build_bars(samples: Mapping[str, Sequence[_Sample]]) -> list[Row]:
    rows = []
    for ours, peer, bar in (
        (_OURS_DEFERRED, _JOB, 0.25),
        (_OURS_DEFERRED, _POD_DEFERRED, 0.5),
        (_OURS, _POD, 0.5),
    ):
        found = _compute_overhead(samples, ours) / _compute_overhead(samples, peer)
        what = f"overhead of {_SUBJECTS[ours]}, against {_SUBJECTS[peer]}"
        rows.append(Row(what, {"ratio": found}, bar=f"at most {bar:g}", met=found <= bar))
    return rows


def _build_phases(samples: Mapping[str, Sequence[_Sample]]) -> list[Row]:
    columns = {"in a worker, seconds": _OURS, "deferrable, seconds": _OURS_DEFERRED}
    lengths = {
        column: [[b - a for a, b in pairwise(sample.moments)] for sample in samples[dag_id]]
        for column, dag_id in columns.items()
    }
    return [
        Row(
            f"of ours: {words}",
            {column: median([each[i] for each in found]) for column, found in lengths.items()},
        )
        for i, words in enumerate(PHASES.values())
    ]


BENCHMARK = Benchmark(
    title="A whole task",
    measure=measure,
    about=(
        f"{_WORK_SECONDS} s of work by two learners, by two pods of a Job, and by one pod, in the "
        "same namespace with the same image; medians of tasks that ran alone, in turn."
    ),
)
