"""The operator in a running Airflow: a training from its launch to its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dev.airflow.access import Admin

FIVE_SECONDS = (
    "for step in 1 2 3 4 5; do echo step $step of learner $LEARNER_ID; sleep 1; done; "
    'echo "{\\"accuracy\\": 0.9$LEARNER_ORDINAL}" > "$LEARNER_RESULT_FILE"'
)
HOMES: dict[str, dict[str, Any]] = {
    "worker": {"deferrable": False},
    "triggerer": {"deferrable": True},
}


def trainings(**tasks: dict[str, Any]) -> str:
    """Source of a DAG with a training for each keyword, side by side."""
    common: dict[str, Any] = {
        "learners": 2,
        "command": "true",
        "cpus": "50m",
        "memory": "64Mi",
        "ready_timeout": 300,
    }
    lines = ["with DAG(DAG_ID, schedule=None):"]
    for name, more in tasks.items():
        image = "" if "image" in more else "image=TINY_IMAGE, "
        lines.append(
            f"    LearnerStatefulSetOperator(task_id={name!r}, namespace=NAMESPACE, {image}"
            f"**{common | more!r})"
        )
    return "\n".join(lines)


def log_of(task: Any) -> str:
    """The log of a task's last try, as one text."""
    return "\n".join(task.read_log())


def test_a_training_shows_its_logs_and_hands_its_result_on(
    airflow: Any, namespace: str, wait_until_empty: Callable[[], None]
) -> None:
    run = airflow.run(
        trainings(**{home: more | {"command": FIVE_SECONDS} for home, more in HOMES.items()})
    )
    run.wait_for("success")
    for home in HOMES:
        log = log_of(run.task(home))
        for ordinal in (0, 1):
            for step in range(1, 6):
                assert log.count(f"[{ordinal}] step {step} of learner {ordinal + 1}") == 1
        outcome = run.task(home).read_xcom()
        assert outcome["phase"] == "Succeeded"
        assert outcome["namespace"] == namespace
        assert outcome["result"] == {"accuracy": 0.9}
        rows = outcome["learners"]
        assert [row["result"] for row in rows] == [{"accuracy": 0.9}, {"accuracy": 0.91}]
        assert [row["exit_code"] for row in rows] == [0, 0]
        assert outcome["timings"]["run"] >= 5
    wait_until_empty()


FAILURES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "exit_code": (
        {"command": "[ $LEARNER_ORDINAL = 0 ] && sleep 60; echo no such file >&2; exit 7"},
        ["LearnerExitError", "learner 1 ended with exit code 7: no such file [ExitCode]"],
    ),
    "out_of_memory": (
        {
            "command": "[ $LEARNER_ORDINAL = 1 ] && sleep 60; x=$(tr '\\0' x < /dev/zero)",
            "memory": "32Mi",
        },
        ["LearnerOutOfMemoryError", "learner 0 ran out of memory", "Raise memory="],
    ),
    "image": (
        {"image": "localhost/alp/Not-A-Name:1"},
        ["LearnerImageError", "[InvalidImageName]", "Correct image="],
    ),
    "no_room": (
        {"cpus": "900", "ready_timeout": 8},
        ["TrainingNotReadyError", "0 of 2 learners were ready after 8 s", "Insufficient cpu"],
    ),
}


def test_a_failure_names_the_learner_and_the_reason_and_leaves_nothing(
    airflow: Any, wait_until_empty: Callable[[], None]
) -> None:
    failures = {
        f"{kind}_in_{home}": (more | HOMES[home], words)
        for kind, (more, words) in FAILURES.items()
        for home in HOMES
    }
    run = airflow.run(trainings(**{name: more for name, (more, _) in failures.items()}))
    run.wait_for("failed")
    for name, (_, words) in failures.items():
        log = log_of(run.task(name))
        for word in words:
            assert word in log
        outcome = run.task(name).read_xcom("outcome")
        assert outcome["phase"] == "Failed"
        assert f"[{outcome['reason']}]" in outcome["message"]
    for home in HOMES:
        log = log_of(run.task(f"exit_code_in_{home}"))
        folded = log.partition("::group::Last lines of learner 1, which failed first")[2]
        assert folded.partition("::endgroup::")[0].strip() == "no such file"
        header, *rows = log.partition("Learners:\n")[2].splitlines()[:3]
        told = [dict(zip(header.split(), row.split(), strict=False)) for row in rows]
        assert [row["ordinal"] for row in told] == ["0", "1"]
        assert (told[1]["exit_code"], told[1]["reason"]) == ("7", "ExitCode")
    wait_until_empty()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no_learners": ({"learners": 0}, "learners: should be greater than"),
    "a_word": ({"learners": "three"}, "learners: should be a valid integer"),
    "unit": ({"memory": "4GiB"}, "memory: should be a Kubernetes quantity"),
    "long_name": ({"name": "n" * 53}, "name: should have at most 52"),
    "key": ({"results": {"type": "host_mount", "pth": 1}}, "results.pth"),
    "image_and_framework": ({"framework": "jax"}, "either image or framework"),
    "neither": ({"image": None}, "either image or framework"),
}


def test_bad_input_is_refused_before_the_first_request(
    airflow: Any, leftovers: Any, namespace: str
) -> None:
    # A connection that leads nowhere: whoever asked the API server would say so.
    nowhere = {"deferrable": False, "kubernetes_conn_id": "no_such_connection"}
    run = airflow.run(trainings(**{name: more | nowhere for name, (more, _) in REFUSED.items()}))
    run.wait_for("failed")
    for name, (_, words) in REFUSED.items():
        log = log_of(run.task(name))
        assert words in log
        assert "no_such_connection" not in log
    assert leftovers(namespace) == []


def test_a_task_that_does_not_wait_for_the_end_or_keeps_its_training_leaves_it_there(
    airflow: Any, namespace: str, admin: Admin
) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "goes_on": {"command": "sleep 600", "wait_until": "ready"},
        "kept": {"on_finish_action": "keep"},
    }
    tasks = {
        f"{kind}_in_{home}": more | HOMES[home] | {"name": f"{kind}-in-{home}".replace("_", "-")}
        for kind, more in kinds.items()
        for home in HOMES
    }
    run = airflow.run(trainings(**tasks))
    run.wait_for("success")
    for home in HOMES:
        assert run.task(f"goes_on_in_{home}").read_xcom()["phase"] == "Running"
        running = read_stateful_set(admin, namespace, f"goes-on-in-{home}")
        assert running["status"]["readyReplicas"] == 2
        deadline = time.monotonic() + 120
        # What is kept holds no resources.
        while read_stateful_set(admin, namespace, f"kept-in-{home}")["status"].get("replicas", 0):
            assert time.monotonic() < deadline
            time.sleep(0.5)


def read_stateful_set(admin: Admin, namespace: str, name: str) -> dict[str, Any]:
    """A StatefulSet as Kubernetes JSON."""
    stateful_set: dict[str, Any] = admin.request(
        "GET", f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}"
    )
    return stateful_set
