"""What a training hands on."""

from typing import Any

import pytest

from airflow_learner_provider.exceptions import LearnerExitError, TrainingFailedError
from airflow_learner_provider.training.diagnosis import GRACE, Reason, Trouble
from airflow_learner_provider.training.naming import OUTCOME
from airflow_learner_provider.training.outcome import (
    ERRORS,
    REMEDIES,
    Outcome,
    build_error,
    build_outcome,
    build_table,
    describe_unready,
    read_note,
    write_note,
)
from airflow_learner_provider.training.status import compute_status
from tests.unit.training.cluster_json import (
    Change,
    disrupted,
    ended,
    event,
    observe,
    pod,
    removed,
    running,
    stateful_set,
    time,
    unscheduled,
    waiting,
)


def conclude(*changes: Change, learners: int, gpus: int = 0) -> Outcome:
    """The outcome of a training of which all this was seen."""
    observation = observe(*changes)
    status = compute_status(observation, learners=learners)
    return build_outcome(observation, status, namespace="ml", gpus=gpus, trouble=status.trouble)


ROW = {
    "ordinal": 0,
    "exit_code": 0,
    "signal": None,
    "reason": "Completed",
    "message": "",
    "collateral": False,
    "node": "node-a",
    "restarts": 0,
    "started": time(3),
    "finished": time(10),
    "seconds": 7.0,
    "result": None,
}


def test_outcome_of_a_training_that_went_well() -> None:
    changes = (
        stateful_set(2),
        pod(0, ended(0, message='{"loss": 0.1}')),
        pod(1, ended(0, at=12, message="as text")),
    )
    assert conclude(*changes, learners=2, gpus=4) == {
        "name": "digits",
        "namespace": "ml",
        "phase": "Succeeded",
        "reason": "",
        "message": "",
        "result": {"loss": 0.1},
        "learners": [
            ROW | {"result": {"loss": 0.1}},
            ROW | {"ordinal": 1, "finished": time(12), "seconds": 9.0, "result": "as text"},
        ],
        "timings": {"queued": 1.0, "ready": 3.0, "run": 9.0},
        "gpu_seconds": 64.0,
        "restarts": [],
        "progress": None,
        "curve": [],
        "artifacts": [],
        "images": [],
    }


def test_outcome_of_a_training_that_failed() -> None:
    changes = (
        stateful_set(3),
        pod(0, ended(143, at=12)),
        pod(1, ended(7, message="no data\n")),
        pod(2, running()),
    )
    expected: dict[str, Any] = {
        "name": "digits",
        "namespace": "ml",
        "phase": "Failed",
        "reason": "ExitCode",
        "message": "training ml/digits: learner 1 ended with exit code 7: no data [ExitCode]. "
        "See the learner's log above.",
        "result": None,
        "learners": [
            ROW
            | {
                "exit_code": 143,
                "signal": "SIGTERM",
                "reason": "Signal",
                "message": "was ended by SIGTERM (exit code 143)",
                "collateral": True,
                "finished": time(12),
                "seconds": 9.0,
            },
            ROW
            | {
                "ordinal": 1,
                "exit_code": 7,
                "reason": "ExitCode",
                "message": "ended with exit code 7: no data",
            },
            ROW
            | {
                "ordinal": 2,
                "exit_code": None,
                "reason": None,
                "finished": None,
                "seconds": None,
            },
        ],
        "timings": {"queued": 1.0, "ready": 3.0, "run": None},
        "gpu_seconds": 0.0,
        "restarts": [],
        "progress": None,
        "curve": [],
        "artifacts": [],
        "images": [],
    }
    assert conclude(*changes, learners=3) == expected


@pytest.mark.parametrize(
    ("learners", "words", "rows"),
    [(2, 100, "all"), (800, 1000, "without words"), (4000, 0, "none")],
)
def test_outcome_of_any_size_can_be_noted(learners: int, words: int, rows: str) -> None:
    outcome = conclude(stateful_set(2), pod(0, ended(0)), pod(1, ended(1)), learners=2)
    row = ROW | {"message": "w" * words, "result": "r" * words}
    outcome["learners"] = [row | {"ordinal": ordinal} for ordinal in range(learners)]
    text = write_note(outcome)
    assert len(text) < 256 * 1024
    short = [row | {"ordinal": n, "message": "", "result": None} for n in range(learners)]
    expected = {"all": outcome["learners"], "without words": short, "none": []}[rows]
    noted = {"metadata": {"annotations": {OUTCOME: text}}}
    assert read_note(noted) == {**outcome, "learners": expected}
    assert read_note({"metadata": {}}) is read_note(None) is None


def test_learner_that_never_ran_costs_nothing() -> None:
    end = {"startedAt": "1970-01-01T00:00:00Z"}
    container = ended(128, "StartError")
    container["state"]["terminated"] |= end
    outcome = conclude(stateful_set(), pod(0, container), learners=1, gpus=8)
    assert outcome["gpu_seconds"] == 0
    assert outcome["learners"][0]["started"] is None


def test_message_of_the_whole_names_no_learner() -> None:
    outcome = conclude(stateful_set(), removed(stateful_set()), learners=1)
    assert outcome["message"] == (
        "training ml/digits: StatefulSet digits was deleted from outside [Deleted]. "
        "Somebody deleted it; clear the task to run it again."
    )


def test_every_reason_has_an_exception_and_a_remedy() -> None:
    assert set(ERRORS) == set(REMEDIES) == set(Reason)
    assert set(GRACE) < set(Reason)
    assert set(ERRORS.values()) == set(TrainingFailedError.__subclasses__())


def test_exception_carries_the_outcome() -> None:
    outcome = conclude(stateful_set(), pod(0, ended(7)), learners=1)
    error = build_error(outcome)
    assert type(error) is LearnerExitError
    assert (str(error), error.outcome, error.reason) == (outcome["message"], outcome, "ExitCode")


UNREADY: dict[str, tuple[list[Change], Trouble]] = {
    "each that is down is told": (
        [
            stateful_set(4, up=1),
            pod(0, running()),
            pod(1, waiting()),
            event("Unhealthy", "Readiness probe failed: 503", about="uid-1"),
            pod(2, phase="Pending", conditions=(unscheduled("no room\n"),)),
        ],
        Trouble(
            Reason.UNSCHEDULABLE,
            "1 of 4 learners were ready after 60 s; "
            "learner 1: Readiness probe failed: 503 [NotReady]; "
            "learner 2: no room [Unschedulable]; "
            "learner 3: the pod was not created",
        ),
    ),
    "nothing is known": (
        [stateful_set(1, up=0)],
        Trouble(
            Reason.NOT_READY,
            "0 of 1 learners were ready after 60 s; learner 0: the pod was not created",
        ),
    ),
    "one that has ended is not down": (
        [stateful_set(2, up=0), pod(0, ended(0)), pod(1, waiting())],
        Trouble(
            Reason.NOT_READY,
            "1 of 2 learners were ready after 60 s; learner 1: the pod is not ready yet [NotReady]",
        ),
    ),
}


@pytest.mark.parametrize("situation", UNREADY)
def test_start_that_took_too_long_names_who_is_not_up(situation: str) -> None:
    changes, trouble = UNREADY[situation]
    status = compute_status(observe(*changes), learners=changes[0][2]["spec"]["replicas"])
    assert describe_unready(status, seconds=60) == trouble


def test_table_has_a_line_for_every_learner() -> None:
    rows = conclude(
        stateful_set(3),
        pod(0, ended(1, at=12)),
        pod(1, running(), deleted=8, conditions=(disrupted("PreemptionByScheduler"),)),
        pod(2, phase="Pending"),
        learners=3,
    )["learners"]
    began, finished = time(3), time(12)
    cells: list[tuple[Any, ...]] = [
        ("ordinal", "exit_code", "signal", "reason", "node", "restarts"),
        ("0", "1", "-", "ExitCode (collateral)", "node-a", "0", began, finished),
        ("1", "-", "-", "Preempted", "node-a", "0", began, "-"),
        ("2", "-", "-", "NotReady", "node-a", "0", "-", "-"),
    ]
    table = [line.split("  ") for line in build_table(rows)]
    words = [tuple(word.strip() for word in line if word.strip()) for line in table]
    assert [line[: len(expected)] for line, expected in zip(words, cells, strict=True)] == cells
    assert words[1][-1] == "ended with exit code 1"


def test_table_tells_the_first_and_the_last_of_a_long_message() -> None:
    message = "Traceback:\n" + "  File\n" * 50 + "ValueError: no data"
    rows = conclude(stateful_set(), pod(0, ended(1, message=message)), learners=1)["learners"]
    [_, line] = build_table(rows)
    assert line.endswith("  ended with exit code 1: Traceback: ... ValueError: no data")
    assert rows[0]["message"].count("File") == 50


def test_table_cuts_a_message_that_is_too_long() -> None:
    message = "word " * 100
    rows = conclude(stateful_set(), pod(0, ended(1, message=message)), learners=1)["learners"]
    [_, line] = build_table(rows)
    assert line.endswith("word ...")
    assert len(line) < 260
