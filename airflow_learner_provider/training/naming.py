"""Names, labels and annotations of a training's objects: the one place where they are made."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

# The controller labels pods with "<name>-<10 characters of hash>", and a label value has at most
# 63 characters (kubernetes/kubernetes#64023).
MAX_NAME_LENGTH = 52
# What is appended to the training's name in the names of its Secrets.
DATA_SECRET = "-data"  # noqa: S105 - part of a name
RESULTS_SECRET = "-results"  # noqa: S105
PULL_SECRET = "-pull"  # noqa: S105
SSH_SECRET = "-ssh"  # noqa: S105
# And of its ConfigMap.
FILES = "-files"
# Volumes of the pod.
DATA_VOLUME = "training-data"
RESULTS_VOLUME = "results"
JOB_VOLUME = "job"
FILES_VOLUME = "files"
_LONGEST_SUFFIX = len(RESULTS_SECRET)

PREFIX = "airflow-learner-provider/"
# Label of the seed: the selector of the Service and the StatefulSet.
TRAINING_ID = "training_id"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "airflow-learner-provider"
# Label that the StatefulSet controller sets since Kubernetes 1.28.
POD_INDEX = "apps.kubernetes.io/pod-index"

# Annotations of the StatefulSet.
TASK_INSTANCE_ID = PREFIX + "task-instance-id"
SPEC_HASH = PREFIX + "spec-hash"
DURABLE = PREFIX + "durable"
REPORTED = PREFIX + "reported"
OUTCOME = PREFIX + "outcome"
PROVIDER_VERSION = PREFIX + "provider-version"
LEARNERS = PREFIX + "learners"
RESTARTS = PREFIX + "restarts"
LOG_POSITIONS = PREFIX + "log-positions"
PROGRESS = PREFIX + "progress"
RESULTS_URI = PREFIX + "results-uri"

# Every object of ours, whoever's training it belongs to.
MANAGED_SELECTOR = f"{MANAGED_BY}={MANAGER}"


@dataclass(frozen=True)
class Owner:
    """The try of a task that a training belongs to.

    :param task_instance_id: changes with every try (Airflow 3.3).
    :param durable: True when the try runs in a worker, which can die without ending the try; a
        later try then adopts the training. In a triggerer a new try means that the user wants the
        task to run again.
    """

    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    try_number: int
    task_instance_id: str
    durable: bool


def build_training_name(owner: Owner) -> str:
    """Name the training of a task: the same for every try, so that no task trains twice at once.

    The name is a DNS label that begins with a letter, and is short enough for every suffix; the
    hash keeps two long ids with a common beginning apart.
    """
    identity = "\0".join((owner.dag_id, owner.task_id, owner.run_id, str(owner.map_index)))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:10]
    readable = re.sub("[^a-z0-9]+", "-", f"{owner.dag_id}-{owner.task_id}".lower()).strip("-")
    if not readable[:1].isalpha():
        readable = f"t-{readable}"
    room = MAX_NAME_LENGTH - _LONGEST_SUFFIX - len(digest) - 1
    return f"{readable[:room].strip('-')}-{digest}"


def build_labels(name: str, owner: Owner) -> dict[str, str]:
    """Labels of every object of a training, to find it by dag, task, run, map index and try."""
    return {
        TRAINING_ID: name,
        MANAGED_BY: MANAGER,
        PREFIX + "dag-id": label_value(owner.dag_id),
        PREFIX + "task-id": label_value(owner.task_id),
        PREFIX + "run-id": label_value(owner.run_id),
        PREFIX + "map-index": label_value(str(owner.map_index)),
        PREFIX + "try-number": str(owner.try_number),
    }


def build_annotations(owner: Owner, *, spec_hash: str, version: str) -> dict[str, str]:
    """Annotations of the StatefulSet: whose it is, word for word, and from what it was made."""
    return {
        PREFIX + "dag-id": owner.dag_id,
        PREFIX + "task-id": owner.task_id,
        PREFIX + "run-id": owner.run_id,
        PREFIX + "map-index": str(owner.map_index),
        **build_claim(owner),
        SPEC_HASH: spec_hash,
        PROVIDER_VERSION: version,
    }


def build_claim(owner: Owner) -> dict[str, str]:
    """Annotations that say which try holds the training; an adopting try writes its own."""
    return {
        PREFIX + "try-number": str(owner.try_number),
        TASK_INSTANCE_ID: owner.task_instance_id,
        DURABLE: str(owner.durable).lower(),
    }


def label_value(value: str) -> str:
    """Turn any text into a label value: at most 63 characters, alphanumeric at both ends.

    A value that had to be changed keeps a hash, so that two of them stay apart.
    """
    safe = re.sub("[^-A-Za-z0-9_.]", "_", value).strip("-_.")
    if safe == value and len(safe) <= 63:
        return safe
    digest = hashlib.sha256(value.encode()).hexdigest()[:8]
    return f"{safe[:54].rstrip('-_.')}-{digest}".lstrip("-")


def ordinal_of(pod_name: str) -> int:
    """Return the ordinal in a learner's pod name: "digits-1" -> 1."""
    return int(pod_name.rpartition("-")[2])


def is_learner_of(name: str, pod_name: str) -> bool:
    """Tell whether a pod is a learner of the training of that name."""
    training, _, ordinal = pod_name.rpartition("-")
    return training == name and ordinal.isdecimal()
