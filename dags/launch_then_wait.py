"""Launch a training in one task, wait for it in others, and remove it whatever happens."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG

from airflow_learner_provider.operators import LearnerDeleteOperator, LearnerStatefulSetOperator
from airflow_learner_provider.sensors import LearnerStatefulSetSensor

IMAGE = os.environ.get("LEARNER_DIGITS_IMAGE", "localhost/alp/digits:1")
NAME = "{{ ti.xcom_pull(task_ids='launch')['name'] }}"

with DAG(
    dag_id="launch_then_wait",
    schedule=None,
    tags=["learners", "example"],
    doc_md="""
### Launch, wait, remove

**launch** returns as soon as the learners are asked for. Other tasks can run beside the training:
here two sensors, one until all learners are ready, one until they are done. **remove** is a
teardown: it runs when a sensor fails, too, and when somebody stops the run.
""",
):
    launch = LearnerStatefulSetOperator(
        task_id="launch",
        learners=2,
        image=IMAGE,
        launcher="jax",
        command="python3 /opt/digits/preprocess.py && python3 /opt/digits/train.py --epochs 3",
        cpus="500m",
        memory="1Gi",
        wait_until="created",
    )
    ready = LearnerStatefulSetSensor(
        task_id="wait_until_ready",
        name=NAME,
        target="ready",
        mode="reschedule",
        timeout=timedelta(minutes=5),
    )
    completed = LearnerStatefulSetSensor(
        task_id="wait_until_completed",
        name=NAME,
        target="completed",
        timeout=timedelta(minutes=15),
        deferrable=True,
    )
    remove = LearnerDeleteOperator(task_id="remove", name=NAME)

    launch >> ready >> completed >> remove.as_teardown(setups=launch)
