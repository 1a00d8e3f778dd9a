"""What importing the operator and the sensor costs, as every parse of a DAG file does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.frame import Benchmark, Effort, Row, median

_SDK = "from airflow.sdk import DAG, BaseOperator, task"
_CNCF = "airflow.providers.cncf.kubernetes"
_SUBJECTS = {
    "`airflow.sdk` alone": "",
    "LearnerStatefulSetOperator and LearnerStatefulSetSensor": (
        "from airflow_learner_provider.operators import LearnerStatefulSetOperator\n"
        "from airflow_learner_provider.sensors import LearnerStatefulSetSensor"
    ),
    "KubernetesPodOperator": f"from {_CNCF}.operators.pod import KubernetesPodOperator",
    "KubernetesJobOperator": f"from {_CNCF}.operators.job import KubernetesJobOperator",
}
_OURS = "LearnerStatefulSetOperator and LearnerStatefulSetSensor"
# The interpreter measures itself, from what it has after `airflow.sdk`.
_PROGRAM = """
import json, sys, time
from pathlib import Path
def resident():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
started = time.perf_counter()
{sdk}
base = time.perf_counter(), resident(), len(sys.modules)
{subject}
after = time.perf_counter(), resident(), len(sys.modules)
over = [b - a for a, b in zip(base, after)]
whole = [after[0] - started, after[1], after[2]]
print(json.dumps([over, whole]))
"""


def _measure_once(subject: str) -> tuple[list[float], list[float]]:
    program = _PROGRAM.format(sdk=_SDK, subject=subject)
    result = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    over, whole = json.loads(result.stdout.strip().splitlines()[-1])
    return over, whole


def measure(effort: Effort) -> list[Row]:
    """Import each subject in fresh interpreters, in turn, so that all see the same machine."""
    samples: dict[str, list[tuple[list[float], list[float]]]] = {name: [] for name in _SUBJECTS}
    for subject in _SUBJECTS.values():
        _measure_once(subject)  # byte code and the disk's cache
    for _ in range(effort.choose(5, 2)):
        for name, subject in _SUBJECTS.items():
            samples[name].append(_measure_once(subject))
    return [_build_row(name, found) for name, found in samples.items()]


def _build_row(name: str, found: Sequence[tuple[list[float], list[float]]]) -> Row:
    seconds, megabytes, modules = (median([over[i] for over, _ in found]) for i in range(3))
    whole = median([whole[0] for _, whole in found])
    values = {
        "seconds over `airflow.sdk`": seconds,
        "MB over": megabytes,
        "modules over": modules,
        "seconds in all": whole,
    }
    if name != _OURS:
        return Row(name, values)
    return Row(name, values, bar="at most 0.15 s and 5 MB", met=seconds <= 0.15 and megabytes <= 5)


BENCHMARK = Benchmark(
    title="Import",
    measure=measure,
    about="Medians of fresh interpreters, one after the other in turn.",
)
