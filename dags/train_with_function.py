"""A Python function that learners run together, once and then for several values."""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import DAG, task

IMAGE = os.environ.get("LEARNER_DIGITS_IMAGE", "localhost/alp/digits:1")  # python3 is enough


@task.learner(learners=2, image=IMAGE, cpus="200m", memory="128Mi", deferrable=True)
def estimate_pi(points: int, *, rank: int = 0, world_size: int = 1) -> float | None:
    # Only the function goes to the learners, so it imports what it needs.
    import json
    import os
    import random
    import time
    from multiprocessing.connection import Client, Listener

    dice = random.Random(rank)  # noqa: S311 - not for secrets
    inside = 0
    for step in range(1, 11):
        inside += sum(dice.random() ** 2 + dice.random() ** 2 < 1 for _ in range(points // 10))
        estimate = 4 * inside / (step * (points // 10))
        print(json.dumps({"step": step, "total": 10, "pi": estimate}), flush=True)  # noqa: T201

    port, key = 29400, os.environ["TRAINING_ID"].encode()
    while rank > 0:
        try:
            with Client((os.environ["FIRST_LEARNER"], port), authkey=key) as first:
                first.send(inside)
                return None
        except OSError:  # not there yet
            time.sleep(0.2)
    with Listener(("", port), authkey=key) as listener:
        for _ in range(world_size - 1):
            with listener.accept() as other:
                inside += other.recv()
    return 4 * inside / (world_size * points)


@task
def compare(roughly: Any, finely: Any) -> list[float]:
    return [abs(finer - roughly) for finer in finely]


with DAG(
    dag_id="train_with_function",
    schedule=None,
    tags=["learners", "example"],
    doc_md="""
### `@task.learner`: a function instead of an image of one's own

Two learners throw points at a square, each its own, and the first one adds them up: what it returns
is the task's result. The second task does it for several numbers of points, each in a training of
one learner.
""",
):
    rough = estimate_pi(10_000)
    fine = estimate_pi.override(task_id="estimate_finely", learners=1).expand(
        points=[100_000, 200_000]
    )
    compare(rough, fine)
