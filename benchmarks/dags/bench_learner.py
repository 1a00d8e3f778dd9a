"""The training: in a worker, in the triggerer, and in the triggerer with an end in a worker."""

import os
from typing import Any

from airflow.sdk import DAG, Asset

from airflow_learner_provider.operators import LearnerStatefulSetOperator

ARGUMENTS: dict[str, Any] = {
    "task_id": "work",
    "namespace": os.environ["BENCH_NAMESPACE"],
    "image": os.environ["BENCH_IMAGE"],
    "command": os.environ["BENCH_COMMAND"],
    "learners": 2,
    "cpus": "20m",
    "memory": "64Mi",
}

with DAG("bench_learner", schedule=None):
    LearnerStatefulSetOperator(**ARGUMENTS, deferrable=False)

with DAG("bench_learner_deferrable", schedule=None):
    LearnerStatefulSetOperator(**ARGUMENTS, deferrable=True)

with DAG("bench_learner_deferrable_asset", schedule=None):
    LearnerStatefulSetOperator(**ARGUMENTS, deferrable=True, outlets=[Asset("bench_model")])
