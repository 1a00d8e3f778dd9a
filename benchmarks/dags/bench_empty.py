"""What Airflow itself takes: a task and a deferral that do nothing."""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, BaseOperator


class Empty(BaseOperator):
    """Does nothing, at once or by way of the triggerer."""

    def __init__(self, *, deferrable: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable

    def execute(self, context: Any) -> None:
        """Do nothing, or defer until now."""
        from airflow.providers.standard.triggers.temporal import DateTimeTrigger

        if self.deferrable:
            self.defer(trigger=DateTimeTrigger(datetime.now(UTC)), method_name="resume")

    def resume(self, context: Any, event: Any) -> None:
        """Do nothing."""


with DAG("bench_empty", schedule=None):
    Empty(task_id="work", deferrable=False)

with DAG("bench_empty_deferrable", schedule=None):
    Empty(task_id="work", deferrable=True)
