"""A retry policy for trainings, to be given to any task as `retry_policy=` (Airflow 3.3 or later).

It decides by the exception: what another try cannot mend fails at once, a learner that lost its
place is tried again at once, and where room is missing the next try waits. Everything else, such as
an exit code, follows the task's own `retries` and `retry_delay`. No policy gives a task more than
its `retries`.
"""

from __future__ import annotations

from datetime import timedelta

try:
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
except ImportError as e:
    raise ImportError(
        "airflow_learner_provider.retry needs Airflow 3.3 or later, which has retry policies; "
        "before that, tasks have only retries= and retry_delay="
    ) from e

from airflow_learner_provider.exceptions import (
    LearnerConfigError,
    LearnerDisruptedError,
    LearnerImageError,
    LearnerOutOfMemoryError,
    TrainingNotReadyError,
)

# To change a decision, put a rule before these: the first one that matches wins.
TRAINING_RETRY_POLICY = ExceptionRetryPolicy(
    rules=[
        RetryRule(
            exception=[LearnerImageError, LearnerConfigError, LearnerOutOfMemoryError],
            action=RetryAction.FAIL,
            reason="The same training would fail the same way",
        ),
        RetryRule(
            exception=LearnerDisruptedError,
            retry_delay=timedelta(0),
            reason="The learner lost its place, not its way",
        ),
        RetryRule(
            exception=TrainingNotReadyError,
            retry_delay=timedelta(minutes=5),
            reason="There may be room later",
        ),
    ]
)
