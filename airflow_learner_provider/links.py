"""Links of a task: to its training's page, and to wherever the user says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from airflow.sdk import BaseOperatorLink, conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

# Where Airflow shows the page, and where the page itself is served; see ui/plugin.py.
_FRAME = "plugin/trainings"
_PAGE = "learners/training"


class TrainingLink(BaseOperatorLink):
    """Leads to the training of a task on the page "Trainings"."""

    name = "Training"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Build the address from whose training it is: there is one before the training is."""
        query = {
            "dag_id": ti_key.dag_id,
            "run_id": ti_key.run_id,
            "task_id": ti_key.task_id,
            "map_index": ti_key.map_index,
        }
        base = conf.get("api", "base_url", fallback="").rstrip("/")
        # The frame's address goes on with the path of what is in it, Airflow's own path included.
        return f"{base}/{_FRAME}{urlsplit(base).path}/{_PAGE}?{urlencode(query)}"


class UserLink(BaseOperatorLink):
    """Leads to where `links=` says, such as a dashboard, TensorBoard or the cluster's console.

    :param name: its name there, and on the task's page.
    """

    name = ""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def xcom_key(self) -> str:
        """Where Airflow keeps the address."""
        return f"_link_{self.name}"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the rendered address; empty when it is none of the web: it may hold a script."""
        address = (getattr(operator, "links", None) or {}).get(self.name)
        is_safe = isinstance(address, str) and urlsplit(address).scheme in {"http", "https"}
        return str(address) if is_safe else ""


def build_links(operator: Any) -> list[BaseOperatorLink]:
    """Build the links of a task, also of one that is to be mapped."""
    named = getattr(operator, "links", None)
    if named is None:
        named = getattr(operator, "partial_kwargs", {}).get("links")
    return [TrainingLink(), *(UserLink(name) for name in named or ())]


def push_links(operator: Any, ti: Any) -> None:
    """Let the links work while the task runs: Airflow itself stores them when it ends or defers."""
    for link in operator.operator_extra_links:
        ti.xcom_push(key=link.xcom_key, value=link.get_link(operator, ti_key=ti))
