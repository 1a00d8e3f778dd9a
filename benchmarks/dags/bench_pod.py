"""The same command in one pod."""

import os
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG
from kubernetes.client import V1ResourceRequirements

ARGUMENTS: dict[str, Any] = {
    "task_id": "work",
    "name": "bench-pod",
    "kubernetes_conn_id": "kubernetes_default",
    "namespace": os.environ["BENCH_NAMESPACE"],
    "image": os.environ["BENCH_IMAGE"],
    "cmds": ["bash", "-c"],
    "arguments": [os.environ["BENCH_COMMAND"]],
    "container_resources": V1ResourceRequirements(requests={"cpu": "20m", "memory": "64Mi"}),
}

with DAG("bench_pod", schedule=None):
    KubernetesPodOperator(**ARGUMENTS, deferrable=False)

with DAG("bench_pod_deferrable", schedule=None):
    KubernetesPodOperator(**ARGUMENTS, deferrable=True)
