"""Train on data from a bucket, and leave the results in it."""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_learner_provider.operators import LearnerStatefulSetOperator

IMAGE = os.environ.get("LEARNER_DIGITS_IMAGE", "localhost/alp/digits:1")
STAGING_IMAGE = os.environ.get("LEARNER_STAGING_IMAGE", "localhost/alp/rclone:1")

BUCKET = {
    "type": "s3_datastore",
    "conn_id": "learner_s3",
    "bucket": os.environ.get("LEARNER_S3_BUCKET", "datasets"),
}
DATA = BUCKET | {"sub_path": "digits/data"}
RUNS = BUCKET | {"sub_path": "digits/runs"}

with DAG(
    dag_id="train_from_s3",
    schedule=None,
    tags=["learners", "example"],
    params={"epochs": Param(3, type="integer", minimum=1, maximum=100, title="Epochs")},
    default_args={
        "image": IMAGE,
        "staging_image": STAGING_IMAGE,
        "cpus": "300m",
        "memory": "1Gi",
        "execution_timeout": timedelta(minutes=15),
    },
    doc_md="""
### Handwritten digits in a bucket

It needs a connection `learner_s3` of type *Amazon Web Services* with the keys of an object store
(and `endpoint_url` in its extra, if it is not Amazon's), and the bucket `datasets`.

1. **prepare** writes the data set, and it is copied to `digits/data` in the bucket.
2. **train** has it copied to both learners; the model of the first is copied to
   `digits/runs/<name of the training>`. The task succeeds when it has arrived.

The learners never see the keys: only the containers that copy do.
""",
):
    prepare = LearnerStatefulSetOperator(
        task_id="prepare",
        learners=1,
        # Right into the store's path; $RESULT_DIR is a folder of this training there.
        command="DATA_DIR=$RESULT_BUCKET_DIR python3 /opt/digits/preprocess.py",
        results=DATA,
    )
    train = LearnerStatefulSetOperator(
        task_id="train",
        learners=2,
        launcher="jax",
        command="python3 /opt/digits/train.py --epochs {{ params.epochs }}",
        training_data=DATA,
        results=RUNS,
        deferrable=True,
    )
    prepare >> train
