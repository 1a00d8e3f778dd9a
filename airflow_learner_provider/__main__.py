"""Command line: `python -m airflow_learner_provider render my_dag.py train`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_learner_provider.exceptions import InvalidSpecError


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is asked for; return the exit code."""
    asked = _parse(arguments)
    try:
        with redirect_stdout(sys.stderr):  # what Airflow and the DAG file say is not for kubectl
            manifests = _render(asked)
    except InvalidSpecError as e:
        print(e, file=sys.stderr)  # noqa: T201
        return 1
    print(manifests, end="")  # noqa: T201 - what the command is for
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m airflow_learner_provider")
    commands = parser.add_subparsers(title="commands", required=True)
    render = commands.add_parser(
        "render",
        help="print the manifests of a task's training",
        description="Print the manifests of a task's training as kubectl takes them, without the "
        "values of Secrets. Nothing is asked of a cluster.",
    )
    render.add_argument("file", type=Path, help="the DAG file")
    render.add_argument("task", help="id of the task")
    render.add_argument("--dag", help="id of the DAG, where the file has several")
    render.add_argument("--conf", type=_conf, default={}, help="the run's params, as JSON")
    render.add_argument("--logical-date", type=_date, help="of the run, ISO 8601; now by default")
    render.add_argument("--map-index", type=int, default=0, help="of a mapped task; 0 by default")
    return parser.parse_args(arguments)


def _conf(text: str) -> dict[str, Any]:
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("not an object")  # noqa: TRY004 - for argparse
    return values


def _date(text: str) -> datetime:
    date = datetime.fromisoformat(text)
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _render(asked: argparse.Namespace) -> str:
    from airflow.sdk.exceptions import ParamValidationError

    from airflow_learner_provider.manifests import render_manifests

    try:
        return render_manifests(
            find_task(asked.file, asked.task, dag_id=asked.dag),
            conf=asked.conf,
            logical_date=asked.logical_date,
            map_index=asked.map_index,
        )
    except ParamValidationError as e:
        raise InvalidSpecError(f"--conf: {str(e).splitlines()[0]}") from e


def find_task(path: Path, task_id: str, *, dag_id: str | None = None) -> Any:
    """Find a task that runs a training, in a DAG file.

    :raises InvalidSpecError: the file is no DAG file, or there is no such task; it names those
        that there are.
    """
    from airflow.dag_processing.dagbag import DagBag

    if not path.is_file():
        raise InvalidSpecError(f"{path}: there is no such file")
    bag = DagBag(path, bundle_path=path.parent, bundle_name="render")
    for error in bag.import_errors.values():
        raise InvalidSpecError(f"{path}: {error.strip().splitlines()[-1]}")
    if dag_id is not None and dag_id not in bag.dags:
        raise InvalidSpecError(f"{path} has no DAG {dag_id!r}; it has {_join(bag.dags)}")
    tasks = {
        (dag.dag_id, task.task_id): task
        for dag in bag.dags.values()
        for task in dag.tasks
        if dag_id in {None, dag.dag_id}
    }
    found = {key: task for key, task in tasks.items() if key[1] == task_id}
    if len(found) > 1:
        raise InvalidSpecError(
            f"{path}: several DAGs have a task {task_id!r}; choose by --dag: "
            f"{_join(dag for dag, _ in found)}"
        )
    ours = _join(task for (_, task), operator in tasks.items() if _is_ours(operator))
    for task in found.values():
        if _is_ours(task):
            return task
        raise InvalidSpecError(
            f"{path}: task {task_id!r} is no LearnerStatefulSetOperator; these are: {ours}"
        )
    raise InvalidSpecError(f"{path} has no task {task_id!r}; tasks that run trainings: {ours}")


def _is_ours(task: Any) -> bool:
    from airflow_learner_provider.operators import LearnerStatefulSetOperator

    operator_class = task.operator_class if task.is_mapped else type(task)
    return issubclass(operator_class, LearnerStatefulSetOperator)


def _join(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))) or "none"


if __name__ == "__main__":
    sys.exit(main())
