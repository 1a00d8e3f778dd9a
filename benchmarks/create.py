"""How long it takes to create a training's objects, against `kubectl apply` of the same ones."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
import uuid
from pathlib import Path

from airflow_learner_provider.cluster.client import create_or_adopt
from airflow_learner_provider.cluster.connection import connect
from airflow_learner_provider.cluster.credentials import ClusterSettings
from airflow_learner_provider.cluster.rights import check_rights
from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.objects import TrainingObjects, build_objects
from airflow_learner_provider.training.spec import parse_training_spec
from benchmarks.frame import Benchmark, Effort, Row, Value, find_cluster, median, ratio, say
from benchmarks.namespace import prepared_namespace
from dev.cluster.build import find_binary

_BAR = 1.5


def _build(namespace: str, learners: int) -> tuple[TrainingObjects, Owner]:
    spec = {
        "learners": learners,
        "image": "none",
        "command": "true",
        "namespace": namespace,
        "node_selector": {"airflow-learner-provider/absent": "true"},  # nothing has to run
    }
    run = uuid.uuid4().hex
    owner = Owner("bench", "train", run, -1, 1, run, durable=True)
    objects = build_objects(
        parse_training_spec(spec), owner, namespace=namespace, version="0", native=True
    )
    return objects, owner


async def _create(settings: ClusterSettings, objects: TrainingObjects, owner: Owner) -> float:
    """Create as a task does, from its first request on, on a connection of its own."""
    async with connect(settings) as connection:
        begun = time.perf_counter()
        await check_rights(connection.api, objects.namespace, {m["kind"] for m in objects.owned})
        await create_or_adopt(connection.api, objects, owner)
        return time.perf_counter() - begun


def _apply(kubeconfig: Path, objects: TrainingObjects) -> float:
    """Apply the same objects with kubectl, which knows the cluster's kinds from the last time."""
    spec = objects.stateful_set["spec"] | {"replicas": objects.learners}
    items = [*objects.owned, objects.stateful_set | {"spec": spec}]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    program = shutil.which("kubectl") or str(find_binary("kubectl"))
    begun = time.perf_counter()
    subprocess.run(
        [program, "--kubeconfig", str(kubeconfig), "apply", "--filename", "-"],
        input=manifest,
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return time.perf_counter() - begun


def measure(effort: Effort) -> list[Row]:
    """Create and apply trainings of several sizes in turn."""
    kubeconfig = find_cluster()
    rows = []
    with prepared_namespace(kubeconfig) as (namespace, role):
        settings = ClusterSettings(kube_config_path=str(role))
        for learners in (1, 4, 16, 64):
            say(f"{learners} learners")
            ours, theirs = [], []
            for _ in range(1 + effort.choose(7, 2)):
                ours.append(asyncio.run(_create(settings, *_build(namespace, learners))))
                theirs.append(_apply(kubeconfig, _build(namespace, learners)[0]))
            created, applied = median(ours[1:]), median(theirs[1:])
            values: dict[str, Value] = {
                "created and scaled ms": created * 1000,
                "`kubectl apply` ms": applied * 1000,
                "ratio": ratio(created, applied),
            }
            met = created <= _BAR * applied
            rows.append(Row(f"{learners} learners", values, bar=f"at most {_BAR} x", met=met))
    return rows


BENCHMARK = Benchmark(
    title="Create",
    measure=measure,
    about=(
        "From the first request, which asks for the account's rights, on a connection that is "
        "opened for it, until the StatefulSet is scaled; and `kubectl apply` of the same "
        "manifests, from its start to its end. No learner is started. Medians, in turn."
    ),
)
