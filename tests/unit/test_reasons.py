"""What the page about reasons says has to be so."""

import re
from pathlib import Path

import pytest

from airflow_learner_provider.retry import TRAINING_RETRY_POLICY
from airflow_learner_provider.training.diagnosis import GRACE, Reason
from airflow_learner_provider.training.outcome import ERRORS, REMEDIES

PAGE = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text()
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in re.findall(r"^\| (`\w+` \|.+) \|$", PAGE, re.MULTILINE)
    if (cells := line.split(" | "))
}


def describe_grace(reason: Reason) -> str:
    if reason not in GRACE:
        return "at once"
    seconds = GRACE[reason]
    return "at `ready_timeout`" if seconds is None else f"after {seconds:.0f} s"


def describe_retry(reason: Reason) -> str:
    decision = TRAINING_RETRY_POLICY.evaluate(ERRORS[reason]("said"), 1, 3)
    if decision.action.value == "default":
        return "the task's own"
    if decision.action.value == "fail":
        return "fails"
    minutes = decision.retry_delay.total_seconds() / 60 if decision.retry_delay else 0
    return f"after {minutes:.0f} min" if minutes else "at once"


def test_page_lists_every_reason_in_order() -> None:
    assert list(ROWS) == list(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_page_tells_what_the_code_does(reason: Reason) -> None:
    meaning, *cells = ROWS[reason]
    assert meaning
    error = f"`{ERRORS[reason].__name__}`"
    assert cells == [describe_grace(reason), error, describe_retry(reason), REMEDIES[reason]]
