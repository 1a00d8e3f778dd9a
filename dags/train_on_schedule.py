"""Train once a day, and try again when something is in the way."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from airflow_learner_provider.operators import LearnerStatefulSetOperator

IMAGE = os.environ.get("LEARNER_DIGITS_IMAGE", "localhost/alp/digits:1")

with DAG(
    dag_id="train_on_schedule",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["learners", "example"],
    default_args={
        "retries": 3,
        "retry_delay": timedelta(minutes=1),
        "retry_exponential_backoff": 2.0,  # after 1, 2 and 4 minutes
        "max_retry_delay": timedelta(hours=1),
        "execution_timeout": timedelta(hours=2),
    },
    doc_md="""
### A training every day

Missed days are not caught up, and a day's training never runs beside the one before. A learner that
fails, a node that goes away or a cluster that is full leads to another try; each try begins with
new learners.
""",
):
    LearnerStatefulSetOperator(
        task_id="train",
        learners=2,
        image=IMAGE,
        launcher="jax",
        # Small enough that every learner prepares the data itself.
        command="python3 /opt/digits/preprocess.py && python3 /opt/digits/train.py --epochs 3",
        cpus="500m",
        memory="1Gi",
        ready_timeout=timedelta(minutes=30),
        deferrable=True,
    )
