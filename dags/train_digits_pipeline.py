"""Preprocess, train on two learners, evaluate, publish: a whole training as one DAG."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, task

from airflow_learner_provider.operators import LearnerStatefulSetOperator

IMAGE = os.environ.get("LEARNER_DIGITS_IMAGE", "localhost/alp/digits:1")

# What the tasks share: a persistent volume claim, or a folder of the node where there is only one.
CLAIM = os.environ.get("LEARNER_DIGITS_CLAIM")
FOLDER = os.environ.get("LEARNER_DIGITS_FOLDER", "/tmp/airflow-learner/digits")  # noqa: S108


def store(part: str) -> dict[str, str]:
    if CLAIM:
        return {"type": "mount_volume", "claim": CLAIM, "sub_path": part}
    return {"type": "host_mount", "host_path": f"{FOLDER}/{part}"}


DATA = store("data")  # at $DATA_DIR
RESULTS = store("results")  # at $RESULT_DIR

MODEL = Asset("digits_model")

with DAG(
    dag_id="train_digits_pipeline",
    schedule=None,
    tags=["learners", "example"],
    params={
        "epochs": Param(
            10,
            type="integer",
            minimum=1,
            maximum=100,
            title="Epochs",
            description="How often training goes through all digits.",
        )
    },
    default_args={
        "image": IMAGE,
        "cpus": "500m",
        "memory": "1Gi",
        "execution_timeout": timedelta(minutes=15),
    },
    doc_md="""
### Handwritten digits, from the data to a published model

1. **preprocess** writes the data set to the shared volume.
2. **train** runs one data-parallel JAX training on two learners. They find each other by the names
   that their headless Service gives them, and average their gradients after every step.
3. **evaluate** measures the model on digits that training has not seen, and fails below 90 %.
4. **publish** tells whoever waits for the asset `digits_model`, with the metrics in its `extra`.
""",
):
    preprocess = LearnerStatefulSetOperator(
        task_id="preprocess",
        learners=1,
        command="python3 /opt/digits/preprocess.py",
        training_data=DATA,
    )
    train = LearnerStatefulSetOperator(
        task_id="train",
        learners=2,
        launcher="jax",
        command="python3 /opt/digits/train.py --epochs {{ params.epochs }}",
        training_data=DATA,
        results=RESULTS,
        ready_timeout=timedelta(minutes=5),
        deferrable=True,
    )
    evaluate = LearnerStatefulSetOperator(
        task_id="evaluate",
        learners=1,
        command="python3 /opt/digits/evaluate.py --minimum 0.9"
        " --model {{ ti.xcom_pull(task_ids='train')['result']['model'] }}",
        training_data=DATA,
        results=RESULTS,
    )

    @task(outlets=[MODEL])
    def publish(training: Any, evaluation: Any, *, outlet_events: Any = None) -> None:
        outlet_events[MODEL].extra = {
            "model": training["result"]["model"],
            "accuracy": evaluation["result"]["accuracy"],
            "loss": training["result"]["loss"],
            "epochs": training["result"]["epochs"],
            "learners": len(training["learners"]),
            "gpu_seconds": training["gpu_seconds"],
        }

    preprocess >> train >> evaluate
    publish(train.output, evaluate.output)
