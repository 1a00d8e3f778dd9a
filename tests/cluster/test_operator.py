"""The operator in a running Airflow: a training from its launch to its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dev.airflow.access import Admin

FIVE_SECONDS = (
    "for step in 1 2 3 4 5; do echo step $step of learner $LEARNER_ID; sleep 1; done; "
    'echo "{\\"accuracy\\": 0.9$LEARNER_ORDINAL}" > "$LEARNER_RESULT_FILE"'
)
HOMES = pytest.mark.parametrize("deferrable", [False, True], ids=["worker", "triggerer"])


def training(*, deferrable: bool, **more: Any) -> str:
    """Source of a DAG with one training, `train`."""
    arguments = {
        "learners": 2,
        "cpus": "50m",
        "memory": "64Mi",
        "ready_timeout": 60,
        "deferrable": deferrable,
    } | more
    image = "" if "image" in arguments else "image=TINY_IMAGE, "
    return f"""
with DAG(DAG_ID, schedule=None):
    LearnerStatefulSetOperator(task_id="train", namespace=NAMESPACE, {image}**{arguments!r})
"""


def log_of(task: Any) -> str:
    """The log of a task's last try, as one text."""
    return "\n".join(task.read_log())


@HOMES
def test_a_training_shows_its_logs_and_hands_its_result_on(
    airflow: Any,
    namespace: str,
    wait_until_empty: Callable[[], None],
    deferrable: bool,
) -> None:
    run = airflow.run(training(command=FIVE_SECONDS, deferrable=deferrable))
    run.wait_for("success")
    log = log_of(run.task("train"))
    for ordinal in (0, 1):
        for step in range(1, 6):
            assert log.count(f"[{ordinal}] step {step} of learner {ordinal + 1}") == 1
    outcome = run.task("train").read_xcom()
    assert outcome["phase"] == "Succeeded"
    assert outcome["namespace"] == namespace
    assert outcome["result"] == {"accuracy": 0.9}
    rows = outcome["learners"]
    assert [row["result"] for row in rows] == [{"accuracy": 0.9}, {"accuracy": 0.91}]
    assert [row["exit_code"] for row in rows] == [0, 0]
    assert 5 <= outcome["timings"]["run"] < 15
    wait_until_empty()


@HOMES
@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param(
            {"command": "[ $LEARNER_ORDINAL = 0 ] && sleep 60; echo no such file >&2; exit 7"},
            ["LearnerExitError", "learner 1 ended with exit code 7: no such file [ExitCode]"],
            id="exit code",
        ),
        pytest.param(
            {
                "command": "[ $LEARNER_ORDINAL = 1 ] && sleep 60; x=$(tr '\\0' x < /dev/zero)",
                "memory": "32Mi",
            },
            ["LearnerOutOfMemoryError", "learner 0 ran out of memory", "Raise memory="],
            id="out of memory",
        ),
        pytest.param(
            {"command": "true", "image": "localhost/alp/Not-A-Name:1"},
            ["LearnerImageError", "[InvalidImageName]", "Correct image="],
            id="image",
        ),
        pytest.param(
            {"command": "true", "cpus": "900", "ready_timeout": 3},
            ["TrainingNotReadyError", "0 of 2 learners were ready after 3 s", "Insufficient cpu"],
            id="no room",
        ),
    ],
)
def test_a_failure_names_the_learner_and_the_reason_and_leaves_nothing(
    airflow: Any,
    wait_until_empty: Callable[[], None],
    deferrable: bool,
    more: dict[str, Any],
    words: list[str],
) -> None:
    run = airflow.run(training(deferrable=deferrable, **more))
    run.wait_for("failed")
    log = log_of(run.task("train"))
    for word in words:
        assert word in log
    if "no such file" in words[1]:
        folded = log.partition("::group::Last lines of learner 1, which failed first")[2]
        assert folded.partition("::endgroup::")[0].strip() == "no such file"
    outcome = run.task("train").read_xcom("outcome")
    assert outcome["phase"] == "Failed"
    assert f"[{outcome['reason']}]" in outcome["message"]
    wait_until_empty()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        pytest.param({"learners": 0}, "learners: should be greater than", id="no learners"),
        pytest.param({"learners": "three"}, "learners: should be a valid integer", id="a word"),
        pytest.param({"memory": "4GiB"}, "memory: should be a Kubernetes quantity", id="unit"),
        pytest.param({"name": "n" * 53}, "name: should have at most 52", id="long name"),
        pytest.param({"results": {"type": "host_mount", "pth": 1}}, "results.pth", id="key"),
        pytest.param({"framework": "jax"}, "either image or framework", id="image and framework"),
        pytest.param({"image": None}, "either image or framework", id="neither"),
    ],
)
def test_bad_input_is_refused_before_the_first_request(
    airflow: Any, leftovers: Any, namespace: str, more: dict[str, Any], words: str
) -> None:
    # A connection that leads nowhere: whoever asked the API server would say so.
    run = airflow.run(
        training(command="true", deferrable=False, kubernetes_conn_id="no_such_connection", **more)
    )
    run.wait_for("failed")
    log = log_of(run.task("train"))
    assert words in log
    assert "no_such_connection" not in log
    assert leftovers(namespace) == []


@HOMES
def test_a_task_that_waits_until_ready_leaves_the_training_running(
    airflow: Any, namespace: str, admin: Admin, deferrable: bool
) -> None:
    run = airflow.run(
        training(command="sleep 600", deferrable=deferrable, wait_until="ready", name="goes-on")
    )
    run.wait_for("success")
    assert run.task("train").read_xcom()["phase"] == "Running"
    assert read_stateful_set(admin, namespace, "goes-on")["status"]["readyReplicas"] == 2


@HOMES
def test_a_training_that_is_kept_holds_no_resources(
    airflow: Any, namespace: str, admin: Admin, deferrable: bool
) -> None:
    run = airflow.run(
        training(command="true", deferrable=deferrable, on_finish_action="keep", name="kept")
    )
    run.wait_for("success")
    deadline = time.monotonic() + 30
    while read_stateful_set(admin, namespace, "kept")["status"].get("replicas", 0):
        assert time.monotonic() < deadline
        time.sleep(0.5)


def read_stateful_set(admin: Admin, namespace: str, name: str) -> dict[str, Any]:
    """A StatefulSet as Kubernetes JSON."""
    stateful_set: dict[str, Any] = admin.request(
        "GET", f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}"
    )
    return stateful_set
