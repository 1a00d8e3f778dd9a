"""The environment of a learner."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence

from kubernetes.client import V1EnvVar, V1EnvVarSource, V1ObjectFieldSelector

from airflow_learner_provider.exceptions import InvalidSpecError

_JOB_ROOT = "/job"
_DATA_ROOT = "/mnt/data"
_RESULTS_ROOT = "/mnt/results"
# Of what is there only these reach a learner: the rest holds credentials of the data stores.
_ALLOWED = frozenset(
    {
        "MODEL_DIR",
        "DATA_DIR",
        "RESULT_DIR",
        "RESULT_BUCKET_DIR",
        "LOG_DIR",
        "CHECKPOINT_DIR",
        "JOB_STATE_DIR",
        "TRAINING_JOB",
        "TRAINING_COMMAND",
        "TRAINING_ID",
        "LEARNER_ID",
        "GPU_COUNT",
        "NUM_LEARNERS",
        "LEARNER_NAME_PREFIX",
        "DOWNWARD_API_POD_NAME",
        "DOWNWARD_API_POD_NAMESPACE",
    }
)


def populate_learner_env_variables_and_labels(  # noqa: PLR0917 - the seed's signature
    existing_env_vars: Sequence[V1EnvVar] | None,
    training_id: str,
    num_learners: int,
    stateful_set_name: str,
    mount_training_data_store_in_learner: bool,  # noqa: FBT001 - the seed's signature
    mount_results_store_in_learner: bool,  # noqa: FBT001 - the seed's signature
) -> list[V1EnvVar]:
    """Build the environment of a learner.

    Variables that are not a learner's are left out, and each ``*_DIR`` becomes an absolute path
    below ``/job``, or below its mounted store. One that comes ``valueFrom`` is kept as it is, for
    its value is not known yet. No name is twice in the result, which Kubernetes would only warn of:
    the last value wins, in the first one's place.

    :param existing_env_vars: the variables of the training.
    :param training_id: becomes ``TRAINING_ID``, and the last part of a mounted ``RESULT_DIR``.
    :param num_learners: becomes ``NUM_LEARNERS``.
    :param stateful_set_name: becomes ``LEARNER_NAME_PREFIX``; learner n is ``<prefix>-<n>``.
    :param mount_training_data_store_in_learner: ``DATA_DIR`` is below ``/mnt/data``.
    :param mount_results_store_in_learner: ``RESULT_DIR`` is below ``/mnt/results``, and
        ``RESULT_BUCKET_DIR`` and ``CHECKPOINT_DIR`` are there as well; they are empty otherwise.
    :raises InvalidSpecError: a ``..`` leads a ``*_DIR`` out of where it has to be.
    """
    kept = [env_var for env_var in existing_env_vars or () if env_var.name in _ALLOWED]
    folders: dict[str, tuple[str, ...]] = {}
    if mount_training_data_store_in_learner:
        folders["DATA_DIR"] = (_DATA_ROOT,)
    if mount_results_store_in_learner:
        folders["RESULT_DIR"] = (_RESULTS_ROOT, training_id)
    rebased = [_rebase(env_var, *folders.get(env_var.name, (_JOB_ROOT,))) for env_var in kept]
    bucket_dir = checkpoint_dir = ""
    if mount_results_store_in_learner:
        for value in (env_var.value for env_var in kept if env_var.name == "RESULT_DIR"):
            bucket_dir = _path_below(_RESULTS_ROOT, value, variable="RESULT_DIR")
            checkpoint_dir = f"{bucket_dir}/_wml_checkpoints"
    return unique_env_vars(
        [
            *rebased,
            _field_reference("DOWNWARD_API_POD_NAME", "metadata.name"),
            _field_reference("DOWNWARD_API_POD_NAMESPACE", "metadata.namespace"),
            _env_var("LEARNER_NAME_PREFIX", stateful_set_name),
            _env_var("TRAINING_ID", training_id),
            _env_var("NUM_LEARNERS", str(num_learners)),
            _env_var("JOB_STATE_DIR", _JOB_ROOT),
            _env_var("CHECKPOINT_DIR", checkpoint_dir),
            _env_var("RESULT_BUCKET_DIR", bucket_dir),
        ]
    )


def unique_env_vars(env_vars: Iterable[V1EnvVar]) -> list[V1EnvVar]:
    """Return the variables with no name twice: the last value wins, in the first one's place."""
    return list({env_var.name: env_var for env_var in env_vars}.values())


def _env_var(name: str, value: str) -> V1EnvVar:
    return V1EnvVar(name=name, value=value or None)


def _field_reference(name: str, field_path: str) -> V1EnvVar:
    selector = V1ObjectFieldSelector(field_path=field_path)
    return V1EnvVar(name=name, value_from=V1EnvVarSource(field_ref=selector))


def _rebase(env_var: V1EnvVar, root: str, *last: str) -> V1EnvVar:
    if env_var.value_from is not None or not env_var.name.endswith("_DIR"):
        return env_var
    path = _path_below(root, env_var.value, *last, variable=env_var.name)
    return V1EnvVar(name=env_var.name, value=path)


def _path_below(root: str, *parts: str | None, variable: str) -> str:
    """Return the clean path of the parts below a folder, which even a ``..`` must not leave."""
    path = posixpath.normpath("/".join((root, *(part or "" for part in parts))))
    if path != root and not path.startswith(f"{root}/"):
        raise InvalidSpecError(f'{variable}: should be a path that no ".." leads out of {root}')
    return path
