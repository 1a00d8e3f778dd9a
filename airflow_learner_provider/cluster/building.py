"""A training's objects, built for the cluster that will have them."""

from __future__ import annotations

import asyncio

from airflow_learner_provider.cluster.client import keeps_restart_policy
from airflow_learner_provider.cluster.connection import Connection
from airflow_learner_provider.cluster.ssh_key import generate_ssh_key
from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.accounts import Accounts
from airflow_learner_provider.training.objects import TrainingObjects, build_objects
from airflow_learner_provider.training.request import TrainingRequest


async def build(
    connection: Connection, request: TrainingRequest, accounts: Accounts, *, native: bool
) -> TrainingObjects:
    """Build a training's objects for the namespace that it will be in.

    :param native: with native completion, else with the wrapper.
    :raises InvalidSpecError: they cannot be built.
    """
    needs_ssh = request.spec.launcher == "mpi"
    # In a thread: the first call imports the models, which takes seconds.
    return await asyncio.to_thread(
        build_objects,
        request.spec,
        request.owner,
        namespace=(await connection.api.credentials()).namespace,
        version=request.version,
        native=native,
        accounts=accounts,
        ssh_key=await asyncio.to_thread(generate_ssh_key) if needs_ssh else None,
    )


async def fit(
    connection: Connection, request: TrainingRequest, accounts: Accounts, objects: TrainingObjects
) -> TrainingObjects:
    """Return the objects as the cluster can have them: native completion where it knows it.

    :raises InvalidSpecError: it cannot have what the spec wants.
    """
    if request.spec.completion == "wrapper":
        return objects
    async with connection.asking:  # once for all trainings that begin together
        if connection.keeps_restart_policy is None:
            connection.keeps_restart_policy = await keeps_restart_policy(connection.api, objects)
    if connection.keeps_restart_policy:
        return objects
    if request.spec.completion == "native" or not isinstance(request.spec.command, str):
        raise InvalidSpecError(
            "completion: this cluster drops restartPolicy from containers (feature gate "
            "ContainerRestartRules), so the command has to be one text for the image's bash"
        )
    return await build(connection, request, accounts, native=False)
