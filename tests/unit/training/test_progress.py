"""How far a training is, by what its learners print."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_learner_provider.training.progress import Progress, ProgressCurve, parse_progress

DOCS = Path(__file__).parents[3] / "docs" / "progress.md"

LINES: dict[str, tuple[str, Progress | None]] = {
    "all of it": (
        '{"step": 120, "total": 1000, "loss": 0.31}',
        Progress(120, 1000, {"loss": 0.31}),
    ),
    "a step is enough": ('{"step": 0}', Progress(0)),
    "a checkpoint": (
        '{"step": 120, "checkpoint": 100}',
        Progress(120, None, {}, checkpoint=100),
    ),
    "a checkpoint that is no number": ('{"step": 120, "checkpoint": 0.5}', Progress(120)),
    "blanks around it": ('  {"step": 1}\r\n', Progress(1)),
    "an integer is a metric as well": ('{"step": 1, "seen": 64}', Progress(1, None, {"seen": 64})),
    "a loss that is not finite is left out": (
        '{"step": 1, "loss": NaN, "lr": 1e999, "f1": -Infinity, "ok": 1}',
        Progress(1, None, {"ok": 1}),
    ),
    "a metric that is not known yet": ('{"step": 1, "accuracy": null}', Progress(1)),
    "what is not a number stays readable": (
        '{"step": 1, "loss": 2.5, "phase": "warm-up", "done": false, "at": {"rank": 0}}',
        Progress(1, None, {"loss": 2.5}, is_mixed=True),
    ),
    "a total of nothing is none": ('{"step": 1, "total": 0}', Progress(1)),
    "a total that is no number": ('{"step": 1, "total": "many"}', Progress(1)),
    "a total that was passed": ('{"step": 9, "total": 3}', Progress(9, 3)),
    "a name that cannot be printed": ('{"step": 1, "\\u0007": 2, "": 3}', Progress(1)),
    "a name without end": (json.dumps({"step": 1, "n" * 49: 2}), Progress(1)),
    "a number of many digits": (f'{{"step": 1, "n": {"9" * 400}}}', Progress(1)),
    "metrics without end": (
        json.dumps({"step": 1} | {f"m{i:02}": i for i in range(100)}),
        Progress(1, None, {f"m{i:02}": i for i in range(8)}),
    ),
    "no step": ('{"loss": 0.31}', None),
    "a step that is a text": ('{"step": "1"}', None),
    "a step that is a truth value": ('{"step": true}', None),
    "half a step": ('{"step": 1.5}', None),
    "a step below nothing": ('{"step": -1}', None),
    "a step of many digits": (f'{{"step": {"9" * 400}}}', None),
    "a list": ('[{"step": 1}]', None),
    "words after it": ('{"step": 1} done', None),
    "words before it": ('INFO {"step": 1}', None),
    "two of them": ('{"step": 1}{"step": 2}', None),
    "Python's spelling": ("{'step': 1}", None),
    "half of it": ('{"step": 1', None),
    "nothing": ("", None),
    "an empty object": ("{}", None),
    "a line without end": (json.dumps({"step": 1, "text": "x" * 4096}), None),
    "brackets without end": ('{"step":' + "[" * 4000 + "}", None),
    "a number that Python refuses": ('{"step": 1, "n": ' + "9" * 4070 + "}", Progress(1)),
}


@pytest.mark.parametrize("case", LINES)
def test_line(case: str) -> None:
    line, expected = LINES[case]
    assert parse_progress(line) == expected


@given(st.text('{}[]":,. 09eE+-NaInfstep\\u\n\ud800').map(lambda text: "{" + text + "}"))
def test_no_line_is_too_odd(line: str) -> None:
    parse_progress(line)


@given(
    st.dictionaries(
        st.sampled_from(["step", "total", "loss", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab\n"),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab"), inner),
            max_leaves=4,
        ),
    )
)
def test_what_was_read_is_plain_json(values: dict[str, Any]) -> None:
    progress = parse_progress(json.dumps(values))
    if progress is not None:
        curve = ProgressCurve.of_lines([json.dumps(values)])
        json.dumps([curve.to_json(), curve.to_rows()], allow_nan=False)
        assert progress.percent is None or 0 <= progress.percent <= 100


WORDS = {
    "step 120/1000 (12%), loss 0.31": Progress(120, 1000, {"loss": 0.31}),
    "step 7": Progress(7),
    "step 999/1000 (99%)": Progress(999, 1000),
    "step 9/3 (100%)": Progress(9, 3),
    "step 1, loss 1.23457e-05, seen 64": Progress(1, None, {"loss": 1.234567e-05, "seen": 64.0}),
}


@pytest.mark.parametrize("words", WORDS)
def test_words(words: str) -> None:
    assert str(WORDS[words]) == words


def curve_of(*steps: int, total: int | None = None, points: int = 100) -> ProgressCurve:
    """A curve with one step a second."""
    curve = ProgressCurve(points=points)
    for at, step in enumerate(steps):
        curve.add(Progress(step, total, {"loss": 1 / (step + 1)}), at=at)
    return curve


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 1000, 4097])
def test_curve_is_bounded_and_spans_the_training_evenly(count: int) -> None:
    steps = [point.step for point in curve_of(*range(count), points=8).points]
    assert len(steps) <= 8
    assert (steps[0], steps[-1]) == (0, count - 1)
    gaps = {after - before for before, after in pairwise(steps[:-1])}
    assert len(gaps) <= 1


def test_lines_of_one_step_add_up() -> None:
    lines = ['{"step": 1, "total": 2, "loss": 3}', '{"step": 1, "accuracy": 0.5, "loss": 2}']
    curve = ProgressCurve.of_lines(lines)
    assert curve.points == [Progress(1, 2, {"loss": 2, "accuracy": 0.5})]
    assert curve.latest is curve.points[0]


def test_last_checkpoint_is_kept_in_mind() -> None:
    lines = ['{"step": 1, "checkpoint": 1}', '{"step": 2}', '{"step": 2, "loss": 3}']
    curve = ProgressCurve.of_lines(lines)
    assert curve.latest == Progress(2, None, {"loss": 3}, checkpoint=1)
    assert ProgressCurve.of_lines(curve.to_lines()).latest == curve.latest


def test_what_is_done_again_takes_the_place_of_what_was_done() -> None:
    curve = curve_of(1, 2, 3, 4, 3, 4, 5)
    assert [point.step for point in curve.points] == [1, 2, 3, 4, 5]


TIMES_LEFT: dict[str, tuple[ProgressCurve, float | None, str]] = {
    "nothing was said": (ProgressCurve(), None, ""),
    "one line has no speed": (curve_of(1, total=10), None, "step 1/10 (10%), loss 0.5"),
    "no total": (curve_of(1, 3), None, "step 3, loss 0.25"),
    "two steps a second": (curve_of(1, 3, total=9), 3, "step 3/9 (33%), loss 0.25, 0:03 left"),
    "hours": (curve_of(0, 1, total=3667), 3666, "step 1/3667 (0%), loss 0.5, 1:01:06 left"),
    "days": (curve_of(0, 1, total=129601), 129600, "step 1/129601 (0%), loss 0.5, 1.5 days left"),
    "all is done": (curve_of(0, 3, total=3), 0, "step 3/3 (100%), loss 0.25"),
    "all is done at once": (curve_of(3, total=3), 0, "step 3/3 (100%), loss 0.25"),
    "more than all is done": (curve_of(0, 4, total=3), 0, "step 4/3 (100%), loss 0.2"),
    "it went back": (curve_of(5, 6, 3, total=9), None, "step 3/9 (33%), loss 0.25"),
}


@pytest.mark.parametrize("case", TIMES_LEFT)
def test_time_left(case: str) -> None:
    curve, seconds, words = TIMES_LEFT[case]
    assert (curve.seconds_left, curve.describe()) == (seconds, words)


def test_lines_are_folded_to_plain_json() -> None:
    lines = ["starting", '{"step": 1, "loss": 0.5}', "...", '{"step": 2, "loss": 0.25}']
    curve = ProgressCurve.of_lines(lines)
    assert curve.to_json() == {
        "step": 2,
        "total": None,
        "percent": None,
        "seconds_left": None,
        "metrics": {"loss": 0.25},
        "checkpoint": None,
    }
    assert curve.to_rows() == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
    assert ProgressCurve.of_lines(curve.to_lines()).points == curve.points


def test_nothing_folds_to_nothing() -> None:
    curve = ProgressCurve.of_lines(["starting", "done"])
    assert (curve.to_json(), curve.to_rows(), curve.points) == (None, [], [])


def test_three_lines_of_python_tell_it(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall("```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    exec(code + "tell(120, 1000, loss=0.31)", {})  # noqa: S102 - our own page
    assert parse_progress(capsys.readouterr().out) == Progress(120, 1000, {"loss": 0.31})
