import pytest

from airflow_learner_provider.cluster import logs
from airflow_learner_provider.cluster.logs import Allowance

FIRST, SECOND = "2026-01-01T00:00:01.5Z", "2026-01-01T00:00:02.1Z"


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MOST_LINES_A_SECOND", 2)
    monkeypatch.setattr(logs, "_MOST_BYTES", 30)


def test_lines_that_are_too_many_in_one_second_are_left_out_and_counted() -> None:
    allowance = Allowance()
    assert [allowance.take(FIRST, 1) for _ in range(5)] == [True, True, False, False, False]
    assert allowance.describe_left_out(FIRST) is None
    said = "... 3 lines left out: more than 2 in a second"
    assert allowance.describe_left_out(SECOND) == said
    assert allowance.describe_left_out(SECOND) is None
    assert allowance.take(SECOND, 1)


def test_a_log_that_ends_says_what_its_last_second_left_out() -> None:
    allowance = Allowance()
    for _ in range(3):
        allowance.take(FIRST, 1)
    assert allowance.describe_left_out() == "... 1 lines left out: more than 2 in a second"


def test_a_log_that_is_too_long_is_used_up() -> None:
    allowance = Allowance()
    assert allowance.take(FIRST, 30)
    assert not allowance.is_used_up
    assert not allowance.take(SECOND, 1)
    assert allowance.is_used_up
