"""Waiting for a training that somebody else made."""

from __future__ import annotations

import time

from airflow_learner_provider.cluster.api import Api
from airflow_learner_provider.cluster.connection import Connection
from airflow_learner_provider.cluster.logs import recover_records
from airflow_learner_provider.exceptions import ApiError, LearnerError
from airflow_learner_provider.training.artifacts import read_results_uri
from airflow_learner_provider.training.diagnosis import (
    GRACE,
    Trouble,
)
from airflow_learner_provider.training.observation import (
    Observation,
    condition,
    unix_time,
)
from airflow_learner_provider.training.outcome import Outcome, build_outcome, read_note
from airflow_learner_provider.training.status import (
    Phase,
    Status,
    compute_status,
    count_learners,
)


async def wait_for_training(
    connection: Connection,
    name: str,
    namespace: str | None,
    *,
    target: str,
    deadline: float,
    poke_interval: float,
) -> Outcome | None:
    """Wait until a training is ready or completed, or has failed.

    :param target: "ready" or "completed".
    :param deadline: Unix time in seconds.
    :param poke_interval: seconds between looks at a StatefulSet that the watch does not see: one
        that is not there yet, or that this provider did not make.
    :return: the outcome, or None when the time is over.
    """
    namespace = namespace or (await connection.api.credentials()).namespace
    async with (
        connection.watch(namespace) as watch,
        watch.subscribe(Observation(name)) as subscription,
    ):
        while True:
            if subscription.observation.was_seen:
                await recover_records(connection.api, namespace, subscription.observation)
                outcome = judge(subscription.observation, namespace, target=target)
            else:
                outcome = await look_at_training(connection, name, namespace, target=target)
            if outcome is not None:
                return outcome
            left = deadline - time.time()
            if left <= 0:
                return None
            await subscription.changed(within=min(left, poke_interval))


async def look_at_training(
    connection: Connection, name: str, namespace: str | None, *, target: str
) -> Outcome | None:
    """Look once: the outcome when the wait is over, else None.

    :raises LearnerError: waiting cannot help: missing rights, an unknown namespace.
    """
    api = connection.api
    namespace = namespace or (await api.credentials()).namespace
    stateful_set = await api.read("StatefulSet", namespace, name)
    if stateful_set is None:
        await _check_namespace(api, namespace)
        return None
    observation = Observation(name, stateful_set["metadata"]["uid"])
    observation.apply("StatefulSet", "ADDED", stateful_set)
    labels = stateful_set["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    for pod in (await api.list("Pod", namespace, selector))["items"]:
        observation.apply("Pod", "ADDED", pod)
    for event in (await api.list("Event", namespace))["items"]:
        observation.apply("Event", "ADDED", event)
    await recover_records(api, namespace, observation)
    return judge(observation, namespace, target=target)


async def _check_namespace(api: Api, namespace: str) -> None:
    """Refuse to wait in a namespace that does not exist: to a named object, too, the answer is 404.

    Whoever has rights in single namespaces only is not told; but then a request in one that does
    not exist has been refused before.
    """
    try:
        found = await api.read("Namespace", "", namespace)
    except ApiError as e:
        if e.status != 403:
            raise
    else:
        if found is None:
            raise LearnerError(f"there is no namespace {namespace}")


def judge(observation: Observation, namespace: str, *, target: str) -> Outcome | None:
    """Tell whether the wait is over: the outcome, or None."""
    if noted := read_note(observation.stateful_set):
        return noted
    learners = count_learners(observation.stateful_set)
    status = compute_status(observation, learners=learners)
    trouble = status.trouble if status.phase is Phase.FAILED else _find_final(observation, status)
    if trouble is None:
        # With no learners wanted there is nothing to be ready.
        over = status.phase is Phase.SUCCEEDED or (target == "ready" and status.ready)
        if not over or learners == 0:
            return None
    return build_outcome(
        observation,
        status,
        namespace=namespace,
        gpus=0,
        trouble=trouble,
        results_uri=read_results_uri(observation.stateful_set),
    )


def _find_final(observation: Observation, status: Status) -> Trouble | None:
    """A trouble that can pass, but has lasted too long for that: since the pod was last ready."""
    for row in status.learners:
        seconds = GRACE.get(row.trouble.reason) if row.trouble is not None else None
        pod = observation.pods.get(row.ordinal)
        if seconds is None or pod is None:
            continue
        created = pod["metadata"]["creationTimestamp"]
        since = condition(pod, "Ready").get("lastTransitionTime") or created
        if time.time() - unix_time(since) > seconds:
            return row.trouble
    return None
