"""What can go wrong, as types that a caller can tell apart.

LearnerError
├── InvalidSpecError               what was asked for is wrong; trying again cannot help
├── ObjectConflictError            the cluster has an object of that name that is not ours
├── ApiError                       the Kubernetes API refuses, or gives no answer
└── TrainingFailedError            the training ended without success
    ├── LearnerExitError           a learner's command failed
    ├── LearnerOutOfMemoryError    a learner needed more memory than it may have
    ├── LearnerImageError          an image cannot be had
    ├── LearnerConfigError         a learner cannot be created or started as it is specified
    ├── LearnerDisruptedError      a learner was preempted or evicted, or its node was lost
    ├── TrainingNotReadyError      not all learners were up in time: no room, quota, volumes ...
    ├── TrainingRemovedError       somebody deleted or scaled it from outside
    ├── TrainingTimeoutError       it took longer than the task's execution_timeout
    └── TrainingKilledError        the task was killed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class LearnerError(Exception):
    """The base of all errors of this package."""


class InvalidSpecError(LearnerError, ValueError):
    """What was asked for cannot be built; the message names the field and what would be right."""


class ObjectConflictError(LearnerError):
    """An object of that name exists and is not ours; it was left as it is."""


class ApiError(LearnerError):
    """The Kubernetes API refused a request, or gave no answer in time.

    :param message: names verb, resource, namespace and name.
    :param status: HTTP status; 0 when there was no answer, 495 when the server's certificate is
        not to be trusted.
    :param reason: the API server's own word, such as "AlreadyExists".
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in {0, 429, 500, 502, 503, 504}

    @property
    def is_final(self) -> bool:
        """Whether waiting cannot help: missing rights, an unknown namespace, no trust."""
        return self.status in {401, 403, 404, 495}


class TrainingFailedError(LearnerError):
    """A training ended without success.

    :param message: says which learner, what, and what to do.
    :param outcome: what is known of the training, as the task would have returned it.
    """

    def __init__(self, message: str, *, outcome: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome

    @property
    def reason(self) -> str:
        """The reason, one of `training.diagnosis.Reason`."""
        return str(self.outcome["reason"]) if self.outcome else ""


class LearnerExitError(TrainingFailedError):
    """A learner's command, or an init container's, failed."""


class LearnerOutOfMemoryError(TrainingFailedError):
    """A learner needed more memory than it may have."""


class LearnerImageError(TrainingFailedError):
    """A learner's image cannot be had."""


class LearnerConfigError(TrainingFailedError):
    """A learner cannot be created or started as it is specified."""


class LearnerDisruptedError(TrainingFailedError):
    """A learner was preempted or evicted, or its node was lost."""


class TrainingNotReadyError(TrainingFailedError):
    """Not all learners were up before the start-up deadline."""


class TrainingRemovedError(TrainingFailedError):
    """Somebody deleted the training, or scaled it, from outside."""


class TrainingTimeoutError(TrainingFailedError):
    """The training took longer than the task's execution_timeout."""


class TrainingKilledError(TrainingFailedError):
    """The task was killed while its training ran."""
