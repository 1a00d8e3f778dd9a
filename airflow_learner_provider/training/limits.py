"""How long each state of a training may last before it is a failure."""

from __future__ import annotations

import json
from typing import TypedDict

from airflow_learner_provider.training.diagnosis import GRACE, Reason, Trouble
from airflow_learner_provider.training.naming import LOG_POSITIONS, PROGRESS, RESTARTS
from airflow_learner_provider.training.observation import Observation
from airflow_learner_provider.training.outcome import describe_unready
from airflow_learner_provider.training.progress import ProgressCurve
from airflow_learner_provider.training.spec import TrainingSpec
from airflow_learner_provider.training.status import Phase, Status

# After the first failure: long enough for the others to fail because of it and be told apart.
_FAILURE_GRACE_SECONDS = 3


class Restart(TypedDict):
    """Why all learners were started again, and when (Unix time in seconds)."""

    reason: str
    message: str
    ordinal: int | None
    at: float


class Limits:
    """The moments at which a training fails if nothing changes; all times are Unix times.

    :param begun: when the learners were started.
    :param deadline: when the task has taken too long.
    :param adopted: whether somebody else has followed the training before.
    """

    def __init__(
        self, spec: TrainingSpec, *, begun: float, deadline: float | None, adopted: bool
    ) -> None:
        self._spec = spec
        self._begun = begun
        self._deadline = deadline
        self._adopted = adopted
        self._is_up = False
        self._since: dict[tuple[Reason, int | None], float] = {}

    def begin_again(self, now: float) -> None:
        """Count anew: all learners are started once more."""
        self._begun = now
        self._adopted = self._is_up = False
        self._since.clear()

    def judge(self, status: Status, now: float) -> tuple[Trouble | None, float | None]:
        """Return the trouble that ends the training, and when to look again if nothing changes."""
        self._is_up |= status.ready
        if self._adopted and all(row.started is not None for row in status.learners):
            # Whoever followed it before has seen it ready; readiness may come and go later.
            self._is_up = True
        limits = self._list(status, now)
        due = next((trouble for moment, trouble in limits if moment <= now), None)
        return due, min((moment for moment, _ in limits), default=None)

    def _list(self, status: Status, now: float) -> list[tuple[float, Trouble]]:
        """The limits that hold now, the most telling first."""
        limits: list[tuple[float, Trouble]] = []
        if status.phase is Phase.FAILED and status.trouble is not None:
            ended = all(row.record is not None or row.trouble for row in status.learners)
            grace = 0 if ended else _FAILURE_GRACE_SECONDS
            limits.append((self._first_seen(status.trouble, now) + grace, status.trouble))
        for row in status.learners:
            seconds = GRACE.get(row.trouble.reason) if row.trouble is not None else None
            if row.trouble is not None and seconds is not None:
                limits.append((self._first_seen(row.trouble, now) + seconds, row.trouble))
        self._forget_passed(status)
        if not self._is_up:
            timeout = self._spec.ready_timeout
            limits.append((self._begun + timeout, describe_unready(status, seconds=timeout)))
        if self._deadline is not None:
            ran = max(self._deadline - self._begun, 0)
            said = f"had not ended after {ran:.0f} s, when the task's execution_timeout was over"
            limits.append((self._deadline, Trouble(Reason.TIMEOUT, said)))
        return limits

    def _first_seen(self, trouble: Trouble, now: float) -> float:
        return self._since.setdefault((trouble.reason, trouble.ordinal), now)

    def _forget_passed(self, status: Status) -> None:
        troubles = [status.trouble, *(row.trouble for row in status.learners)]
        present = {(trouble.reason, trouble.ordinal) for trouble in troubles if trouble}
        self._since = {key: since for key, since in self._since.items() if key in present}


def read_restarts(observation: Observation) -> list[Restart]:
    """The restarts that are noted on a training's StatefulSet."""
    restarts: list[Restart] = json.loads(_annotation(observation, RESTARTS) or "[]")
    return restarts


def read_log_positions(observation: Observation) -> dict[str, str]:
    """How far the learners' logs were copied, as noted on a training's StatefulSet."""
    positions: dict[str, str] = json.loads(_annotation(observation, LOG_POSITIONS) or "{}")
    return positions


def read_progress(observation: Observation) -> ProgressCurve:
    """The progress that is noted on a training's StatefulSet."""
    return ProgressCurve.of_lines((_annotation(observation, PROGRESS) or "").splitlines())


def _annotation(observation: Observation, key: str) -> str | None:
    metadata = (observation.stateful_set or {}).get("metadata", {})
    value: str | None = (metadata.get("annotations") or {}).get(key)
    return value
