"""How many trainings are built in a second: what is pure, without a cluster or an Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.objects import build_objects
from airflow_learner_provider.training.spec import parse_training_spec
from benchmarks.frame import Benchmark, Effort, Row, median, repeat, time_of

_OWNER = Owner("dag", "train", "run", -1, 1, "try-1", durable=False)
_SMALL: Mapping[str, Any] = {"learners": 2, "image": "busybox", "command": "true"}
_LARGE: Mapping[str, Any] = {
    **_SMALL,
    "learners": 1000,
    "launcher": "torchrun",
    "gpus": 8,
    "env": {f"NAME_{number}": f"value {number}" for number in range(50)},
    "training_data": {"type": "host_mount", "host_path": "/data", "mount_path": "/mnt/data"},
    "pod_template": {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}},
}


def measure(effort: Effort) -> list[Row]:
    """Parse and build, again and again, in one thread."""
    return [
        _measure("small: two learners", _SMALL, effort),
        _measure("large: 1,000 learners, 50 variables, a store and a pod template", _LARGE, effort),
    ]


def _measure(what: str, values: Mapping[str, Any], effort: Effort) -> Row:
    count = effort.choose(200, 50)

    def parse() -> None:
        for _ in range(count):
            parse_training_spec(values)

    def build() -> None:
        for _ in range(count):
            build_objects(spec, _OWNER, namespace="ml", version="1", native=True)

    spec = parse_training_spec(values)
    seconds = [
        median(repeat(partial(time_of, work), rounds=effort.choose(5, 2)))
        for work in (parse, build)
    ]
    parsing, building = (each / count for each in seconds)
    return Row(
        what,
        {
            "parsed a second": 1 / parsing,
            "built a second": 1 / building,
            "both a second": 1 / (parsing + building),
        },
    )


BENCHMARK = Benchmark(
    title="Builders",
    measure=measure,
    about="A spec is parsed from JSON values, and all its objects are built from it.",
)
