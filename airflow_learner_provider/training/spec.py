"""What the user asked for, parsed once into frozen values.

Operator arguments are plain JSON so that Jinja can be rendered in them. After rendering they are
parsed here; everything behind this module trusts the types and checks nothing again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.diagnosis import Reason
from airflow_learner_provider.training.rendering import find_none
from airflow_learner_provider.training.values import (
    ENV_NAME,
    AbsolutePath,
    ArtifactPattern,
    Bucket,
    Count,
    ExtendedResource,
    ImageName,
    Labels,
    Megabytes,
    Namespace,
    Quantity,
    Text,
    TrainingName,
)

# Where the seed mounts the stores, and what a pod keeps to itself.
DATA_ROOT = "/mnt/data"
RESULTS_ROOT = "/mnt/results"
JOB_ROOT = "/job"
FILES_ROOT = f"{JOB_ROOT}/files"

SET_BY_PROVIDER = frozenset(
    {"TRAINING_ID", "LEARNER_ID", "NUM_LEARNERS", "LEARNER_NAME_PREFIX", "LEARNER_RESULT_FILE"}
    | {"TRAINING_COMMAND", "JOB_STATE_DIR", "DOWNWARD_API_POD_NAME", "DOWNWARD_API_POD_NAMESPACE"}
    | {"RESULT_BUCKET_URL", "LAUNCH_COMMAND", "LEARNER_ARTIFACTS"}
)

# The training is gone, or somebody wants it to end.
_NEVER_RESTARTED = {Reason.SCALED, Reason.TIMEOUT, Reason.KILLED}


class WaitUntil(StrEnum):
    """How far the task follows its training."""

    CREATED = "created"
    READY = "ready"
    COMPLETED = "completed"


class OnFinish(StrEnum):
    """What happens to the objects when the training has ended."""

    DELETE = "delete"
    KEEP = "keep"
    DELETE_ON_SUCCESS = "delete_on_success"


class _Frozen(BaseModel):
    # The input may hold secrets, so it is never echoed in an error.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Store(_Frozen):
    """A data store: where training data comes from, or where results go.

    The keys of an object store are in the Secret `secret`, or in the Airflow connection `conn_id`,
    from which a Secret is made for this training.
    """

    type: Literal["host_mount", "mount_volume", "mount_cos", "s3_datastore"]
    mount_path: AbsolutePath | None = None
    sub_path: str = ""
    host_path: AbsolutePath | None = None
    claim: str | None = None
    bucket: Bucket | None = None
    endpoint: str | None = None
    region: str | None = None
    secret: str | None = None
    conn_id: str | None = None
    csi_driver: str | None = None
    cache_size: Text | None = None
    disk_free: Megabytes | None = None

    @field_validator("sub_path")
    @classmethod
    def _stays_inside(cls, value: str) -> str:
        # https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath
        if value.startswith("/") or ".." in value.split("/"):
            raise ValueError("should be a relative path without '..'")
        return value

    @model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Self:
        needed, possible = _STORE_FIELDS[self.type]
        for field in sorted(needed):
            if getattr(self, field) is None:
                raise ValueError(f"{field} is needed by a store of type {self.type}")
        given = {field for field, value in self if value is not None}
        for field in sorted(given - needed - possible - _EVERY_STORE):
            raise ValueError(f"{field} has no meaning for a store of type {self.type}")
        if "secret" in possible and (self.secret is None) == (self.conn_id is None):
            raise ValueError("give either secret or conn_id: where the store's keys are")
        if self.type == "mount_cos" and self.endpoint is None and self.conn_id is None:
            raise ValueError("endpoint is needed by a store of type mount_cos")
        return self


_EVERY_STORE = {"type", "mount_path", "sub_path"}
_OBJECT_STORE = {"endpoint", "region", "secret", "conn_id", "disk_free"}
# By type: fields that must be given, and those that may be.
_STORE_FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "host_mount": ({"host_path"}, set()),
    "mount_volume": ({"claim"}, set()),
    "mount_cos": ({"bucket"}, _OBJECT_STORE | {"cache_size", "csi_driver"}),
    "s3_datastore": ({"bucket"}, _OBJECT_STORE),
}


class TrainingSpec(_Frozen):
    """One training as the user asked for it; times are in seconds."""

    learners: Count = Field(ge=1, le=2**31 - 1)
    command: str | list[Text] = Field(min_length=1)
    image: ImageName | None = None
    framework: str | None = None
    framework_version: Text | None = None
    launcher: Literal["none", "torchrun", "jax", "tensorflow", "mpi"] = "none"
    processes_per_learner: Count = Field(default=1, ge=1)
    cpus: Quantity = "1"
    memory: Quantity = "1Gi"
    gpus: Count = Field(default=0, ge=0)
    gpu_resource: ExtendedResource | None = None
    env: dict[str, Text] = Field(default_factory=dict)
    training_data: Store | None = None
    results: Store | None = None
    artifacts: list[ArtifactPattern] = Field(default_factory=list)
    name: TrainingName | None = None
    namespace: Namespace | None = None
    labels: Labels = Field(default_factory=dict)
    node_selector: Labels = Field(default_factory=dict)
    image_pull_secret: str = ""
    image_pull_conn_id: str | None = None
    staging_image: ImageName = "rclone/rclone:1.76.0"
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    files: dict[str, str] = Field(default_factory=dict)
    pod_template: dict[str, Any] = Field(default_factory=dict)
    pod_management_policy: Literal["Parallel", "OrderedReady"] = "Parallel"
    min_ready_seconds: Count = Field(default=5, ge=0)
    completion: Literal["auto", "native", "wrapper"] = "auto"
    holder_image: ImageName | None = None
    max_restarts: Count = Field(default=0, ge=0)
    restart_on: tuple[Reason, ...] = (Reason.PREEMPTED, Reason.EVICTED, Reason.NODE_LOST)
    wait_until: WaitUntil = WaitUntil.COMPLETED
    ready_timeout: float = Field(default=600, gt=0)
    on_finish_action: OnFinish = OnFinish.DELETE

    @field_validator("env")
    @classmethod
    def _names_are_free(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if not ENV_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid name of an environment variable")
            if name in SET_BY_PROVIDER:
                raise ValueError(f"{name} is set by the provider; choose another name")
        return env

    @field_validator("restart_on")
    @classmethod
    def _can_pass(cls, reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
        for reason in reasons:
            if reason in _NEVER_RESTARTED:
                raise ValueError(f"{reason} cannot be mended by a restart")
        return reasons

    @model_validator(mode="after")
    def _has_a_holder(self) -> Self:
        if isinstance(self.command, str):
            return self
        if self.completion == "wrapper":
            raise ValueError("completion: the wrapper needs a shell; give command as one text")
        if self.holder_image is None:
            raise ValueError(
                "holder_image: a command that is a list runs without a shell; name a small image "
                "with a shell, such as busybox, to hold the pod after it has ended"
            )
        return self

    @model_validator(mode="after")
    def _fits_its_launcher(self) -> Self:
        if self.processes_per_learner > 1 and self.launcher not in {"torchrun", "mpi"}:
            raise ValueError(
                "processes_per_learner: torchrun and mpi start processes; with another launcher "
                "one process has all GPUs of its learner"
            )
        if self.launcher == "mpi" and not isinstance(self.command, str):
            raise ValueError("command: the mpi launcher needs a shell; give command as one text")
        return self

    @model_validator(mode="after")
    def _has_one_image(self) -> Self:
        if (self.image is None) == (self.framework is None):
            raise ValueError("give either image or framework (with framework_version)")
        if (self.framework is None) != (self.framework_version is None):
            raise ValueError("framework and framework_version go together")
        return self

    @model_validator(mode="after")
    def _can_wait_for_the_upload(self) -> Self:
        staged = self.results is not None and self.results.type == "s3_datastore"
        if staged and not isinstance(self.command, str):
            raise ValueError(
                "results: nobody waits for the copy to an s3_datastore when command is a list; "
                "give it as one text"
            )
        return self

    @model_validator(mode="after")
    def _can_tell_its_artifacts(self) -> Self:
        if self.artifacts and self.results is None:
            raise ValueError("artifacts: they are files in the results' store; name it in results")
        if self.artifacts and "RESULT_DIR" in self.env:
            raise ValueError("env: RESULT_DIR is set by the provider when there are artifacts")
        if self.artifacts and not isinstance(self.command, str):
            raise ValueError(
                "artifacts: nobody lists them when command is a list; give it as one text"
            )
        return self

    @model_validator(mode="after")
    def _has_one_pull_secret(self) -> Self:
        if self.image_pull_secret and self.image_pull_conn_id is not None:
            raise ValueError("give either image_pull_secret or image_pull_conn_id")
        return self

    @model_validator(mode="after")
    def _mounts_each_store_elsewhere(self) -> Self:
        stores = ((DATA_ROOT, self.training_data), (RESULTS_ROOT, self.results))
        paths = [store.mount_path or root for root, store in stores if store is not None]
        taken = [path.rstrip("/") for path in (*paths, JOB_ROOT)]
        if len(set(taken)) < len(taken):
            raise ValueError(
                "training_data and results should each have a mount_path of their own, other than "
                f"{JOB_ROOT}"
            )
        return self

    @property
    def connection_ids(self) -> set[str]:
        """The Airflow connections whose accounts the training needs."""
        stores = (self.training_data, self.results)
        used = {store.conn_id for store in stores if store is not None} | {self.image_pull_conn_id}
        return {conn_id for conn_id in used if conn_id is not None}

    def spec_hash(self) -> str:
        """Hash of all that makes a training what it is; two tries with one hash are the same."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse_training_spec(values: Mapping[str, Any]) -> TrainingSpec:
    """Parse rendered operator arguments.

    :param values: JSON values by field name; None means that the field was not given.
    :raises InvalidSpecError: names each wrong field and what would be right, never its value.
    """
    given = {key: value for key, value in values.items() if value is not None}
    if absent := list(find_none(given)):
        raise InvalidSpecError(
            f"{', '.join(absent)}: is the text None; a template in it found no value"
        )
    try:
        return TrainingSpec.model_validate(given)
    except ValidationError as e:
        raise InvalidSpecError("; ".join(_describe(error) for error in e.errors())) from None


def _describe(error: Any) -> str:
    field = ".".join(str(part) for part in error["loc"])
    message = (
        error["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("Value ")
    )
    if error["type"] == "extra_forbidden":
        message = "is not a known key"
    return f"{field}: {message}" if field else message
