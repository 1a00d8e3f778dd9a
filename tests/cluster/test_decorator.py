"""Python functions that learners run, in a running Airflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cluster.fixtures import AirflowUnderTest

DAGS = Path(__file__).parents[2] / "dags"


def test_a_function_runs_on_learners_once_and_for_several_values(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    source = """
@task.learner(learners=2, image=DIGITS_IMAGE, cpus="50m", memory="64Mi")
def spread(shares: dict, *, rank, world_size):
    shares = {name: share / world_size for name, share in shares.items()}
    if rank == 1:
        raise ValueError(f"no room for {sorted(shares)}")
    return shares

@task.learner(
    learners=2, image=DIGITS_IMAGE, launcher="jax", cpus="300m", memory="512Mi",
    deferrable=True, multiple_outputs=True,
)
def meet(*, rank, world_size):
    import jax
    from jax.experimental.multihost_utils import process_allgather

    jax.distributed.initialize()
    ranks = process_allgather(jax.numpy.array([rank])).flatten().tolist()
    return {"ranks": ranks, "size": world_size}

@task.learner(learners=2, image=DIGITS_IMAGE)
def reach_out(): return DAG_ID

with DAG(DAG_ID, schedule=None):
    spread({"left": 1, "right": "{{ 4 }}"})
    met = meet()
    task(lambda ranks: sum(ranks), task_id="add")(met["ranks"])
    reach_out()
"""
    example = airflow.trigger(airflow.copy_dag_file(DAGS / "train_with_function.py"))
    failing = airflow.run(source.replace('"{{ 4 }}"', "4"))
    failing.wait_for("failed")
    task = failing.task("spread")
    outcome = task.read_xcom("outcome")
    assert outcome["reason"] == "ExitCode"
    for said in ("learner 1", "on rank 1 of 2\nTraceback", "no room for ['left', 'right']"):
        assert said in outcome["message"]
    assert task.read_xcom() is None
    assert failing.task("meet").read_xcom() == {"ranks": [0, 1], "size": 2}
    assert failing.task("add").read_xcom() == 1
    said = "reach_out: reach_out uses DAG_ID from outside"
    assert any(said in line for line in failing.task("reach_out").read_log())

    example.wait_for("success")
    results = [example.task("estimate_pi")]
    results += [example.task("estimate_finely", index) for index in (0, 1)]
    assert [task.read_xcom() for task in results] == pytest.approx([3.14] * 3, abs=0.1)
    outcome = results[0].read_xcom("outcome")
    assert [row["exit_code"] for row in outcome["learners"]] == [0, 0]
    assert outcome["progress"]["step"] == 10
    assert len(example.task("compare").read_xcom()) == 2
    wait_until_empty()
