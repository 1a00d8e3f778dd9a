"""What every benchmark gives and gets: rows of a table, and how much work to do for them."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Value = float | str


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's table.

    :param what: what was measured.
    :param values: the figures by the names of their columns, units in the names.
    :param bar: what was to be reached, if anything: "at most 0.15 s".
    :param met: whether it was.
    :param note: why it was not, or what has to be known.
    """

    what: str
    values: Mapping[str, Value]
    bar: str = ""
    met: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Effort:
    """How much work a run of the benchmarks is worth.

    :param quick: whether it is to show only that all works, and roughly how fast.
    """

    quick: bool = False

    def choose(self, full: int, quick: int) -> int:
        """Return the number for this effort: of rounds, of trainings ..."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Benchmark:
    """A question and how it is answered.

    :param title: the heading of its table.
    :param measure: does the work and returns the table's rows.
    :param about: what is done, in a sentence or two, to stand above the table.
    """

    title: str
    measure: Callable[[Effort], Sequence[Row]]
    about: str = ""


def repeat(work: Callable[[], float], *, rounds: int, warm_up: int = 1) -> list[float]:
    """Do the work for nothing first, then some rounds, and return what it measured in each."""
    for _ in range(warm_up):
        work()
    return [work() for _ in range(rounds)]


def time_of(work: Callable[[], object]) -> float:
    """Return how many seconds the work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median(values: Sequence[float]) -> float:
    """Return the value in the middle."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of the values that this many percent of them do not exceed."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


def ratio(value: float, to: float) -> str:
    """Say how many times as large a value is as another one."""
    return f"{value / to:.2f} x"


def say(text: str) -> None:
    """Tell the user, at once, what is being done."""
    print(f"   {text}", file=sys.stderr, flush=True)


def find_cluster() -> Path:
    """Return the kubeconfig of the cluster to measure on; without KUBECONFIG the local one."""
    if path := os.environ.get("KUBECONFIG"):
        return Path(path).resolve()
    started = subprocess.run(
        [sys.executable, "-m", "dev.cluster", "up"], stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(started.stdout.strip().splitlines()[-1])
