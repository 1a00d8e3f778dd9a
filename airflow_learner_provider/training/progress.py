"""How far a training is: lines of a learner's output that say so, and what they add up to."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

POINTS = 100

_LONGEST_LINE = 4096
_LONGEST_NAME = 48
_MOST_METRICS = 8
_LARGEST_STEP = 2**53  # what every reader of JSON keeps exactly
_SECONDS_A_DAY = 86_400


@dataclass(frozen=True)
class Progress:
    """What one line says.

    :param step: steps done, counted over the whole training.
    :param total: steps that there will be, if that is known.
    :param metrics: the other numbers of the line by name, such as the loss; all are finite.
    :param checkpoint: step of the newest checkpoint that is complete, if there is one.
    :param is_mixed: the line holds more than numbers, so that it is also for people to read.
    """

    step: int
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint: int | None = None
    is_mixed: bool = False

    @property
    def percent(self) -> float | None:
        """How much of the total is done, at most 100; None when the total is not known."""
        return None if self.total is None else min(100 * self.step / self.total, 100.0)

    def __str__(self) -> str:
        """Say it in words, such as "step 120/1000 (12%), loss 0.31"."""
        done = f"step {self.step}"
        if self.total is not None:
            done += f"/{self.total} ({math.floor(self.percent or 0)}%)"
        return ", ".join([done, *(f"{name} {value:.6g}" for name, value in self.metrics.items())])


def parse_progress(line: str) -> Progress | None:
    """Return what a line of a learner's output says of progress; None for every other line.

    Such a line is one JSON object with an integer `step`, at best also a `total`, perhaps the step
    of the last `checkpoint`, and any numbers: `{"step": 120, "total": 1000, "loss": 0.31}`. Never
    raises, whatever the line is.

    Numbers that are not finite, and those after the first 8, are left out. So is all that is not
    a number; `is_mixed` tells that there was something of that kind.
    """
    text = line.strip()
    if not text.startswith("{") or not text.endswith("}") or len(text) > _LONGEST_LINE:
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    step = values.pop("step", None)
    if not _is_count(step):
        return None
    total, checkpoint = values.pop("total", None), values.pop("checkpoint", None)
    numbers = {name: value for name, value in values.items() if _is_metric(name, value)}
    return Progress(
        step=step,
        total=total if _is_count(total) and total > 0 else None,
        metrics={name: float(value) for name, value in [*numbers.items()][:_MOST_METRICS]},
        checkpoint=checkpoint if _is_count(checkpoint) else None,
        is_mixed=any(isinstance(value, str | bool | list | dict) for value in values.values()),
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_STEP


def _is_metric(name: str, value: Any) -> bool:
    if type(value) is int:
        return abs(value) <= _LARGEST_STEP and _is_metric_name(name)
    return type(value) is float and math.isfinite(value) and _is_metric_name(name)


def _is_metric_name(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable()


class ProgressCurve:
    """What the lines so far add up to, in bounded space.

    When there are more steps than points, every second point is dropped, and from then on every
    second step is kept, and so on: the curve always spans the whole training evenly. Lines of the
    same step add up. A step that is smaller than the last one means that the training went back, to
    a checkpoint perhaps: what it does again takes the place of what it did.

    :param points: how many points are kept at most.
    """

    def __init__(self, *, points: int = POINTS) -> None:
        self.latest: Progress | None = None
        self._limit = max(points, 2)
        self._points: list[Progress] = []
        self._stride = 1
        self._count = 0
        self._begun: tuple[int, float] | None = None
        self._at = 0.0

    @classmethod
    def of_lines(cls, lines: Iterable[str], *, points: int = POINTS) -> Self:
        """Fold the lines of a log that carry no times; what is not progress is passed over."""
        curve = cls(points=points)
        for line in lines:
            if progress := parse_progress(line):
                curve.add(progress)
        return curve

    def add(self, progress: Progress, *, at: float | None = None) -> None:
        """Take the next line.

        :param at: Unix time in seconds at which it was written, if that is known.
        """
        last = self.latest
        if last is not None and progress.checkpoint is None:
            progress = replace(progress, checkpoint=last.checkpoint)
        self.latest = progress
        if last is not None and progress.step == last.step:
            total, metrics = progress.total or last.total, {**last.metrics, **progress.metrics}
            self.latest = replace(progress, total=total, metrics=metrics)
            if self._points[-1] is last:
                self._points[-1] = self.latest
            return
        if last is not None and progress.step < last.step:
            self._points = [p for p in self._points if p.step < progress.step]
            self._begun, self._count = None, 0
        if at is not None:
            self._begun, self._at = self._begun or (progress.step, at), at
        if self._count % self._stride == 0:
            self._points.append(progress)
        self._count += 1
        if len(self._points) == self._limit:  # one less: the latest may come on top
            self._points = self._points[::2]
            self._stride *= 2

    @property
    def points(self) -> list[Progress]:
        """The points kept, by step; the last one is the latest."""
        if self.latest is None or (self._points and self._points[-1] is self.latest):
            return list(self._points)
        return [*self._points, self.latest]

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes if it goes on as fast; None while nobody can tell."""
        if self.latest is None or self.latest.total is None:
            return None
        if self.latest.step >= self.latest.total:
            return 0
        if self._begun is None:
            return None
        step, at = self._begun
        done, spent = self.latest.step - step, self._at - at
        if done <= 0 or spent <= 0:
            return None
        return (self.latest.total - self.latest.step) * spent / done

    def describe(self) -> str:
        """Say the latest in words, with the time left."""
        if self.latest is None:
            return ""
        left = self.seconds_left
        return f"{self.latest}" + (f", {_describe_seconds(left)} left" if left else "")

    def to_json(self) -> dict[str, Any] | None:
        """The latest, as plain JSON; None while there is nothing."""
        if self.latest is None:
            return None
        left = self.seconds_left
        return {
            "step": self.latest.step,
            "total": self.latest.total,
            "percent": None if self.latest.percent is None else round(self.latest.percent, 1),
            "seconds_left": None if left is None else round(left, 1),
            "metrics": dict(self.latest.metrics),
            "checkpoint": self.latest.checkpoint,
        }

    def to_rows(self) -> list[dict[str, float]]:
        """The points as plain JSON, one row a point: its step and its metrics, to six digits."""
        return [
            {"step": p.step, **{name: float(f"{v:.6g}") for name, v in p.metrics.items()}}
            for p in self.points
        ]

    def to_lines(self) -> list[str]:
        """The points as lines from which `of_lines` makes a curve again."""
        if self.latest is None:
            return []
        known = {"total": self.latest.total, "checkpoint": self.latest.checkpoint}
        return [json.dumps(row | known) for row in self.to_rows()]


def _describe_seconds(seconds: float) -> str:
    whole = math.ceil(seconds)
    if whole >= _SECONDS_A_DAY:
        return f"{whole / _SECONDS_A_DAY:.1f} days"
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
