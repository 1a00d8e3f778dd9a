"""A deferred task that succeeds ends without a worker, unless one has something left to do."""

from __future__ import annotations

from dev.airflow.rest import Run, Task
from tests.cluster.fixtures import AirflowUnderTest

DAG = """
import datetime
from airflow.sdk import Asset

def say(context):
    print(f"{context['ti'].task_id} called back")

small = {
    "image": TINY_IMAGE,
    "namespace": NAMESPACE,
    "learners": 1,
    "cpus": "20m",
    "memory": "32Mi",
    "ready_timeout": 300,
    "deferrable": True,
}
write = 'echo "[$N, 2.5, null]" > $LEARNER_RESULT_FILE'
with DAG(DAG_ID, schedule=None):
    plain = LearnerStatefulSetOperator.partial(
        task_id="plain", command=write, **small
    ).expand(env=[{"N": "0"}, {"N": "{{ 1 }}"}])
    task(lambda outcomes: [[o["result"], o["phase"]] for o in outcomes], task_id="read")(
        plain.output
    )
    LearnerStatefulSetOperator(task_id="silent", command="true", do_xcom_push=False, **small)
    LearnerStatefulSetOperator(
        task_id="asset", command="true", outlets=[Asset(DAG_ID + "_model")], **small
    )
    LearnerStatefulSetOperator(task_id="callback", command="true", on_success_callback=say, **small)
    LearnerStatefulSetOperator(
        task_id="retried",
        command="exit $((2 - {{ ti.try_number }}))",
        retries=1,
        retry_delay=datetime.timedelta(0),
        on_retry_callback=say,
        **small,
    )
    LearnerStatefulSetOperator(
        task_id="left", command="true", name="left", wait_until="created", **small
    ) >> LearnerStatefulSetSensor(
        task_id="wait", name="left", target="completed", namespace=NAMESPACE, deferrable=True
    )
"""


def count_workers(task: Task, try_number: int = 1) -> int:
    """How many times a worker ran the task."""
    return task.read_log(try_number).count("::group::Pre Execute")


def test_ending_in_the_triggerer_loses_nothing_that_a_worker_does(
    airflow: AirflowUnderTest,
) -> None:
    run: Run = airflow.run(DAG)
    run.wait_for("success")
    ended_in_triggerer = [run.task("plain", 0), run.task("plain", 1), run.task("silent")]
    ended_in_triggerer += [run.task("left"), run.task("wait")]
    assert [count_workers(task) for task in ended_in_triggerer] == [1] * 5
    assert [count_workers(run.task(name)) for name in ("asset", "callback", "retried")] == [2] * 3
    assert count_workers(run.task("retried"), 2) == 1

    expected = [[[0, 2.5, None], "Succeeded"], [[1, 2.5, None], "Succeeded"]]
    assert run.task("read").read_xcom() == expected
    assert run.task("plain", 1).read()["rendered_fields"]["env"] == {"N": "1"}
    assert run.task("silent").read_xcom() is None
    assert run.task("wait").read_xcom()["phase"] == "Succeeded"
    assert [event["name"] for event in airflow.api.list_asset_events(run)] == [
        f"{run.dag_id}_model"
    ]
    assert "callback called back" in run.task("callback").read_log()
    log = run.task("retried").read_log(1)
    assert "retried called back" in log
    assert any("LearnerExitError" in line for line in log)
    assert run.task("retried").read_xcom()["phase"] == "Succeeded"
