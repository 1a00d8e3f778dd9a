"""A training's objects in the cluster: create all or nothing, adopt, delete."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_learner_provider.cluster.api import Api, Json
from airflow_learner_provider.exceptions import ApiError, LearnerError, ObjectConflictError
from airflow_learner_provider.training.adoption import Decision, decide_existing, holds
from airflow_learner_provider.training.completion import CONTAINER
from airflow_learner_provider.training.naming import (
    LOG_POSITIONS,
    MANAGED_BY,
    MANAGER,
    OUTCOME,
    PROGRESS,
    REPORTED,
    RESTARTS,
    SPEC_HASH,
    TRAINING_ID,
    Owner,
    build_claim,
)
from airflow_learner_provider.training.objects import TrainingObjects

log = logging.getLogger(__name__)

_SET = "StatefulSet"
# How long a predecessor of the same name may take to go: its pods' grace period and then some.
_GONE_SECONDS = 120
_POLL_SECONDS = 0.5
_ALREADY_EXISTS = "AlreadyExists"


async def create_or_adopt(
    api: Api, objects: TrainingObjects, owner: Owner
) -> tuple[Json, bool, bool]:
    """Bring a training into being, or go on with the one that is there.

    The StatefulSet comes first, with 0 replicas, and owns everything else; it is scaled up last. So
    no learner runs before everything exists, and a crash in between costs nothing: deleting the
    StatefulSet takes all along, and the next call goes on where this one was.

    :return: the StatefulSet as stored, whether it was created now, and whether its learners were
        started now: whoever created it may have died before that.
    :raises ObjectConflictError: an object of that name is not ours; it is left as it is.
    :raises LearnerError: a predecessor does not go away.
    :raises ApiError: as the API server said it; what was made is for `release` to delete.
    """
    stateful_set, created = await _claim(api, objects, owner)
    for manifest in objects.owned:
        await _create_owned(api, manifest, stateful_set)
    started = stateful_set["spec"]["replicas"] == 0
    return await scale(api, stateful_set, objects.learners), created, started


async def _claim(api: Api, objects: TrainingObjects, owner: Owner) -> tuple[Json, bool]:
    """Return the StatefulSet, and whether this call created it."""
    deadline = time.monotonic() + _GONE_SECONDS
    while True:
        try:
            return await api.create(objects.stateful_set), True
        except ApiError as e:
            if e.reason != _ALREADY_EXISTS:
                raise
        existing = await api.read(_SET, objects.namespace, objects.name)
        if existing is None:
            continue
        if await _may_adopt(api, existing, objects, owner):
            adopted = await _adopt(api, existing, owner)
            if adopted is not None:
                return adopted, False
        if time.monotonic() > deadline:
            raise LearnerError(await _describe_remains(api, existing))
        await asyncio.sleep(_POLL_SECONDS)


async def _may_adopt(api: Api, existing: Json, objects: TrainingObjects, owner: Owner) -> bool:
    """Tell whether what exists is this training; False when it is on its way out."""
    where = f"StatefulSet {objects.namespace}/{objects.name}"
    spec_hash = objects.stateful_set["metadata"]["annotations"][SPEC_HASH]
    match decide_existing(existing, owner, spec_hash=spec_hash):
        case Decision.ADOPT:
            return True
        case Decision.CONFLICT:
            raise ObjectConflictError(
                f"{where} exists and is not this task's; give the training another name="
            )
        case Decision.REPLACE:
            try:
                await _delete(api, existing)
            except ApiError as e:
                if e.status != 409:  # it has changed since it was read: look again
                    raise
            else:
                log.info("Replacing %s of an earlier try", where)
    return False


async def _describe_remains(api: Api, stateful_set: Json) -> str:
    metadata = stateful_set["metadata"]
    left = await list_pods(api, metadata["namespace"], metadata["name"])
    return (
        f"StatefulSet {metadata['namespace']}/{metadata['name']} of an earlier try is still being "
        f"deleted after {_GONE_SECONDS} s (finalizers: {metadata.get('finalizers') or []}; "
        f"pods left: {', '.join(left) or 'none'})"
    )


async def _adopt(api: Api, stateful_set: Json, owner: Owner) -> Json | None:
    """Write the new owner on a training; None when it has changed since it was read."""
    if holds(stateful_set, owner):
        return stateful_set
    metadata = stateful_set["metadata"]
    claim = {"resourceVersion": metadata["resourceVersion"], "annotations": build_claim(owner)}
    try:
        return await api.patch(_SET, metadata["namespace"], metadata["name"], {"metadata": claim})
    except ApiError as e:
        if e.status != 409:
            raise
    return None


async def _create_owned(api: Api, manifest: Json, stateful_set: Json) -> None:
    reference = {
        "apiVersion": "apps/v1",
        "kind": _SET,
        "name": stateful_set["metadata"]["name"],
        "uid": stateful_set["metadata"]["uid"],
        "controller": True,
    }
    metadata = manifest["metadata"] | {"ownerReferences": [reference]}
    try:
        await api.create(manifest | {"metadata": metadata})
    except ApiError as e:
        if e.reason != _ALREADY_EXISTS:
            raise
        # Made by an earlier attempt whose answer was lost, or by the try before a restart.
        existing = await api.read(manifest["kind"], metadata["namespace"], metadata["name"])
        owners = existing["metadata"].get("ownerReferences") or [] if existing else []
        if not any(entry["uid"] == reference["uid"] for entry in owners):
            raise ObjectConflictError(
                f"{manifest['kind']} {metadata['namespace']}/{metadata['name']} exists and does "
                "not belong to this training; give the training another name="
            ) from e


async def scale(api: Api, stateful_set: Json, learners: int) -> Json:
    """Start the learners; return the StatefulSet as stored."""
    if stateful_set["spec"]["replicas"] == learners:
        return stateful_set
    metadata = stateful_set["metadata"]
    # The uid is a precondition: a StatefulSet that took this one's place is left alone.
    patch = {"metadata": {"uid": metadata["uid"]}, "spec": {"replicas": learners}}
    return await api.patch(_SET, metadata["namespace"], metadata["name"], patch)


async def release(api: Api, namespace: str, name: str, owner: Owner) -> bool:
    """Delete a training, unless another try holds it.

    :return: whether there was something of this try's to delete.
    """
    while True:
        existing = await api.read(_SET, namespace, name)
        if existing is None or not holds(existing, owner):
            return False
        if existing["metadata"].get("deletionTimestamp"):
            return True
        try:
            await _delete(api, existing)
        except ApiError as e:
            if e.status != 409:  # it has changed since it was read: perhaps somebody adopted it
                raise
        else:
            log.info("Deleted StatefulSet %s/%s", namespace, name)
            return True


async def _delete(api: Api, stateful_set: Json) -> None:
    metadata = stateful_set["metadata"]
    seen = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    # Foreground: the StatefulSet is there until the last pod is gone, so that its name tells
    # whether learners may still run.
    options = {"propagationPolicy": "Foreground", "preconditions": seen}
    await api.delete(_SET, metadata["namespace"], metadata["name"], options)


async def delete_training(api: Api, namespace: str, name: str, *, seconds: float) -> bool:
    """Delete a training whoever's it is, and wait until it is gone; False when there is none.

    :raises ObjectConflictError: the StatefulSet is not one of this provider's.
    :raises LearnerError: it is not gone in time.
    """
    existing = await api.read(_SET, namespace, name)
    if existing is None:
        return False
    metadata = existing["metadata"]
    if (metadata.get("labels") or {}).get(MANAGED_BY) != MANAGER:
        raise ObjectConflictError(
            f"StatefulSet {namespace}/{name} was not made by this provider; it is left as it is"
        )
    options = {"propagationPolicy": "Foreground", "preconditions": {"uid": metadata["uid"]}}
    await api.delete(_SET, namespace, name, options)
    if not await wait_until_gone(api, namespace, name, uid=metadata["uid"], seconds=seconds):
        left = ", ".join(await list_pods(api, namespace, name))
        raise LearnerError(
            f"StatefulSet {namespace}/{name} is not gone after {seconds:.0f} s; pods left: {left}"
        )
    return True


async def wait_until_gone(api: Api, namespace: str, name: str, *, uid: str, seconds: float) -> bool:
    """Wait for a StatefulSet and its pods to be gone; False when they are not in time."""
    deadline = time.monotonic() + seconds
    while True:
        existing = await api.read(_SET, namespace, name)
        if existing is None or existing["metadata"]["uid"] != uid:
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)


async def scale_to_zero(api: Api, stateful_set: Json, *, restarts: list[Json]) -> None:
    """End all learners in order to start them again; why is noted on the StatefulSet."""
    metadata = stateful_set["metadata"]
    noted = {"uid": metadata["uid"], "annotations": {RESTARTS: json.dumps(restarts)}}
    patch = {"metadata": noted, "spec": {"replicas": 0}}
    await api.patch(_SET, metadata["namespace"], metadata["name"], patch)


async def note_logs(
    api: Api,
    namespace: str,
    name: str,
    *,
    uid: str,
    positions: Mapping[str, str],
    progress: Sequence[str],
) -> None:
    """Note how far the learners' logs have been copied, for whoever follows next.

    :param progress: lines that say as much as those that told progress.
    """
    annotations = {LOG_POSITIONS: json.dumps(positions)}
    if progress:
        annotations[PROGRESS] = "\n".join(progress)
    noted = {"uid": uid, "annotations": annotations}
    await api.patch(_SET, namespace, name, {"metadata": noted})


async def keeps_restart_policy(api: Api, objects: TrainingObjects) -> bool:
    """Ask whether the API server keeps a restart policy on a container of a StatefulSet.

    One that does not know the field, or has the feature off, drops it without a word.

    :param objects: of a training with native completion.
    """
    manifest = objects.stateful_set
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "name"}
    probe = manifest | {"metadata": metadata | {"generateName": f"{objects.name}-"}}
    try:
        answer = await api.create(probe, dry_run=True)
    except ApiError as e:
        if e.status in {401, 403}:
            raise
        # Whatever is wrong with the object itself is for the real request to say.
        log.info("No answer about restart policies of containers: %s", e)
        return False
    containers = answer["spec"]["template"]["spec"]["containers"]
    return any(
        entry["name"] == CONTAINER and entry.get("restartPolicy") == "Never" for entry in containers
    )


async def mark_reported(api: Api, namespace: str, name: str, *, uid: str) -> None:
    """Note on a training that its task has ended, so that no later try takes it over."""
    patch = {"metadata": {"uid": uid, "annotations": {REPORTED: "true"}}}
    await api.patch(_SET, namespace, name, patch)


async def put_to_rest(api: Api, namespace: str, name: str, *, uid: str, outcome: str) -> None:
    """Keep a training that has ended, but none of its learners: they hold CPUs and GPUs.

    That its end was reported is noted on it, so that no later try takes it over.

    :param outcome: what is noted for those who come later, for the pods that tell it go.
    """
    annotations = {REPORTED: "true", OUTCOME: outcome, PROGRESS: None}  # the outcome has it
    metadata = {"uid": uid, "annotations": annotations}
    await api.patch(_SET, namespace, name, {"metadata": metadata, "spec": {"replicas": 0}})


async def list_pods(api: Api, namespace: str, name: str) -> list[str]:
    """Names of the pods of a training."""
    answer = await api.list("Pod", namespace, f"{TRAINING_ID}={name}")
    items: list[dict[str, Any]] = answer["items"]
    return [pod["metadata"]["name"] for pod in items]
