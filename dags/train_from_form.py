"""Let people start a training from a form in Airflow's user interface."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_learner_provider.operators import LearnerStatefulSetOperator

IMAGE = os.environ.get("LEARNER_DIGITS_IMAGE", "localhost/alp/digits:1")

with DAG(
    dag_id="train_from_form",
    schedule=None,
    tags=["learners", "example"],
    params={
        "learners": Param(
            2,
            type="integer",
            minimum=1,
            maximum=8,
            title="Learners",
            description="How many learners train together.",
            section="Cluster",
        ),
        "memory": Param(
            "1Gi",
            type="string",
            pattern="^[1-9][0-9]*(Mi|Gi)$",
            title="Memory",
            description="Memory of each learner, such as 512Mi or 2Gi.",
            section="Cluster",
        ),
        "image": Param(
            IMAGE,
            type="string",
            minLength=1,
            title="Image",
            description="Container image of the learners; it has the training code in it.",
            section="Cluster",
        ),
        "epochs": Param(
            10,
            type="integer",
            minimum=1,
            maximum=100,
            title="Epochs",
            description="How often training goes through all digits.",
            section="Training",
        ),
        "learning_rate": Param(
            0.1,
            type="number",
            exclusiveMinimum=0,
            maximum=1,
            title="Learning rate",
            description="How far each step goes: more is faster, too much never arrives.",
            section="Training",
        ),
    },
    doc_md="""
### A training by form

*Trigger* opens a form with these fields. Airflow checks what is entered before a run begins.
""",
):
    LearnerStatefulSetOperator(
        task_id="train",
        learners="{{ params.learners }}",
        image="{{ params.image }}",
        launcher="jax",
        command="""
            python3 /opt/digits/preprocess.py &&
            python3 /opt/digits/train.py --epochs "$EPOCHS" --lr "$LEARNING_RATE"
        """,
        # As variables, what people enter cannot become part of the script.
        env={"EPOCHS": "{{ params.epochs }}", "LEARNING_RATE": "{{ params.learning_rate }}"},
        cpus="500m",
        memory="{{ params.memory }}",
        ready_timeout=timedelta(minutes=5),
        deferrable=True,
    )
