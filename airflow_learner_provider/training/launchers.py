"""How learners find each other: the environment each framework expects for its rendezvous.

Pure functions from the training to environment variables. What depends on the learner's ordinal
comes from the label that the StatefulSet controller puts on each pod, through the downward API.
"""

from __future__ import annotations

from kubernetes.client import V1EnvVar, V1EnvVarSource, V1ObjectFieldSelector

from airflow_learner_provider.training.naming import POD_INDEX

JAX_COORDINATOR_PORT = 1234
ORDINAL = "LEARNER_ORDINAL"


def learner_address(name: str, *, ordinal: int, namespace: str) -> str:
    """DNS name of a learner: the governing Service of the StatefulSet has the set's own name.

    https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#stable-network-id
    """
    return f"{name}-{ordinal}.{name}.{namespace}.svc"


def build_ordinal_env(variable: str) -> V1EnvVar:
    """A variable that holds the ordinal of the learner it is in."""
    field = V1ObjectFieldSelector(field_path=f"metadata.labels['{POD_INDEX}']")
    return V1EnvVar(name=variable, value_from=V1EnvVarSource(field_ref=field))


def build_launcher_env(
    launcher: str, *, name: str, namespace: str, learners: int
) -> list[V1EnvVar]:
    """Environment of the rendezvous.

    :param launcher: "none", or "jax" for `jax.distributed.initialize()`, which reads
        JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    """
    if launcher == "none":
        return []
    first = learner_address(name, ordinal=0, namespace=namespace)
    return [
        V1EnvVar(name="JAX_COORDINATOR_ADDRESS", value=f"{first}:{JAX_COORDINATOR_PORT}"),
        V1EnvVar(name="JAX_NUM_PROCESSES", value=str(learners)),
        build_ordinal_env("JAX_PROCESS_ID"),
    ]
