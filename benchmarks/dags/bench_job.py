"""The same command in a Job of two pods."""

import os

from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
from airflow.sdk import DAG
from kubernetes.client import V1ResourceRequirements

with DAG("bench_job_deferrable", schedule=None):
    KubernetesJobOperator(
        task_id="work",
        name="bench-job",
        kubernetes_conn_id="kubernetes_default",
        namespace=os.environ["BENCH_NAMESPACE"],
        image=os.environ["BENCH_IMAGE"],
        cmds=["bash", "-c"],
        arguments=[os.environ["BENCH_COMMAND"]],
        container_resources=V1ResourceRequirements(requests={"cpu": "20m", "memory": "64Mi"}),
        parallelism=2,
        completions=2,
        wait_until_job_complete=True,
        deferrable=True,
    )
