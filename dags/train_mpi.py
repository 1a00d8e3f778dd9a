"""Train with Open MPI on two learners."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_learner_provider.operators import LearnerStatefulSetOperator

IMAGE = os.environ.get("LEARNER_FRAMEWORKS_IMAGE", "localhost/alp/frameworks:1")

with DAG(
    dag_id="train_mpi",
    schedule=None,
    tags=["learners", "example"],
    params={"steps": Param(100, type="integer", minimum=1, title="Steps")},
    doc_md="""
### Two learners, two processes in each, started by mpirun

With `launcher="mpi"` the first learner runs the command, and the others wait for it to start
processes in them by ssh. The keys are made for this training and deleted with it. The image has
only to have `ssh`, `sshd` and `mpirun` in it; Horovod's trainings are started in the same way.
""",
):
    LearnerStatefulSetOperator(
        task_id="train",
        learners=2,
        image=IMAGE,
        launcher="mpi",
        processes_per_learner=2,
        command="mpirun python3 /opt/frameworks/train_mpi.py --steps {{ params.steps }}",
        memory="1Gi",
        cpus="300m",
        execution_timeout=timedelta(minutes=15),
        deferrable=True,
    )
