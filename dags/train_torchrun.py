"""Train with PyTorch on two learners."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_learner_provider.operators import LearnerStatefulSetOperator

IMAGE = os.environ.get("LEARNER_FRAMEWORKS_IMAGE", "localhost/alp/frameworks:1")

with DAG(
    dag_id="train_torchrun",
    schedule=None,
    tags=["learners", "example"],
    params={"steps": Param(100, type="integer", minimum=1, title="Steps")},
    doc_md="""
### Two learners, two processes in each, started by torchrun

`launcher="torchrun"` gives torchrun its arguments as variables, so the command is plain
`torchrun train.py`: torchrun finds the others, and each process its rank.
`processes_per_learner` is usually the number of GPUs of a learner.
""",
):
    LearnerStatefulSetOperator(
        task_id="train",
        learners=2,
        image=IMAGE,
        launcher="torchrun",
        processes_per_learner=2,
        command="torchrun /opt/frameworks/train_torch.py --steps {{ params.steps }}",
        memory="1Gi",
        cpus="300m",
        execution_timeout=timedelta(minutes=15),
        deferrable=True,
    )
