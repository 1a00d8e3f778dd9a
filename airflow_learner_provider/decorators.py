"""`@task.learner`: a Python function that learners run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory

from airflow_learner_provider.operators import LearnerStatefulSetOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.bases.decorator import TaskDecorator

    from airflow_learner_provider.training.outcome import Outcome

# What the learners themselves give the function.
_GIVEN_THERE = ("rank", "world_size")


class LearnerDecoratedOperator(DecoratedOperator, LearnerStatefulSetOperator):
    """Runs a function once in every learner; what rank 0 returns is the task's result.

    Takes the arguments of `LearnerStatefulSetOperator` but `command`.

    :param python_callable: the function; its source is shipped, without what is around it.
    :param op_args: its positional arguments, JSON.
    :param op_kwargs: its arguments by name, JSON.
    """

    custom_operator_name = "@task.learner"
    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *(field for field in LearnerStatefulSetOperator.template_fields if field != "command"),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        "pod_template": "yaml",
        "env": "json",
    }

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        parameters = inspect.signature(python_callable).parameters
        given = dict(op_kwargs or {})
        # Airflow checks that the function can be called with what the DAG gives it.
        missing = {
            name: None
            for name in _GIVEN_THERE
            if name in parameters
            and name not in given
            and parameters[name].default is inspect.Parameter.empty
        }
        super().__init__(
            python_callable=python_callable, op_kwargs=given | missing, command="", **kwargs
        )
        self.op_kwargs = given

    @property
    def is_async(self) -> bool:
        """Whether the task runs on an event loop: it never does, whatever the function is."""
        return False

    def _read_spec_values(self) -> dict[str, Any]:
        from airflow_learner_provider.training.function import build_command, build_files

        source: str = self.get_python_source()  # type: ignore[no-untyped-call]
        files = build_files(
            self.python_callable.__name__, source, list(self.op_args), self.op_kwargs
        )
        command = build_command(self.launcher, int(self.processes_per_learner))
        return super()._read_spec_values() | {"files": files, "command": command}

    def _conclude(self, context: Context, outcome: Outcome) -> Any:
        super()._conclude(context, outcome)
        context["ti"].xcom_push(key="outcome", value=outcome)
        return outcome["result"]


def learner_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,  # noqa: FBT001 - Airflow's own signature
    **kwargs: Any,
) -> TaskDecorator:
    """Make a task of a function that learners run, as `@task.learner(learners=2, image=...)`.

    :param python_callable: the function.
    :param multiple_outputs: whether each key of a returned dict is an XCom of its own.
    :param kwargs: arguments of `LearnerStatefulSetOperator`, and of every operator.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=LearnerDecoratedOperator,
        **kwargs,
    )
