"""Train with TensorFlow on two learners."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_learner_provider.operators import LearnerStatefulSetOperator

IMAGE = os.environ.get("LEARNER_FRAMEWORKS_IMAGE", "localhost/alp/frameworks:1")

with DAG(
    dag_id="train_tensorflow",
    schedule=None,
    tags=["learners", "example"],
    params={"steps": Param(100, type="integer", minimum=1, title="Steps")},
    doc_md="""
### Two learners that are TensorFlow's workers

`launcher="tensorflow"` writes `TF_CONFIG`, which `MultiWorkerMirroredStrategy` reads: all learners
are workers, and the first one is the chief.
""",
):
    LearnerStatefulSetOperator(
        task_id="train",
        learners=2,
        image=IMAGE,
        launcher="tensorflow",
        command="python3 /opt/frameworks/train_tensorflow.py --steps {{ params.steps }}",
        memory="1Gi",
        cpus="300m",
        execution_timeout=timedelta(minutes=15),
        deferrable=True,
    )
