"""How far a training is, told while it runs. Best effort: what fails here changes no verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Self

from airflow_learner_provider.cluster.task_log import Log
from airflow_learner_provider.training.progress import ProgressCurve, parse_progress

# What keeps the progress of all learners: they train together, so one speaks for them.
SPEAKER = "0"

_TELL_SECONDS = 10
_REPORT_SECONDS = 30


class ProgressTeller:
    """Takes lines that tell progress out of the learners' output, and says it now and then.

    It does so as a context manager, and at its end once more if nothing went wrong.

    :param log: has a line at the first step, then at most every 10 s, and at the last step.
    :param report: is given the same as plain JSON, in a thread, at most every 30 s.
    :param curve: what was told before, by whoever followed the training then.
    """

    def __init__(
        self, log: Log, report: Callable[[dict[str, Any]], None] | None, curve: ProgressCurve
    ) -> None:
        self.curve = curve
        self._log = log
        self._report_to = report
        self._changed = asyncio.Event()
        self._told = self._reported = curve.latest
        self._reported_at = -float(_REPORT_SECONDS)

    def take(self, whose: str, line: str, *, at: float) -> bool:
        """Return whether a line is nothing but progress, so that it need not be shown.

        That of other learners than the first one is passed over.

        :param whose: such as "0", or "0 download" for what stages a learner's data.
        :param at: Unix time in seconds at which it was written.
        """
        if not whose.isdecimal() or (progress := parse_progress(line)) is None:
            return False
        if whose == SPEAKER:
            self.curve.add(progress, at=at)
            self._changed.set()
        return not progress.is_mixed

    async def __aenter__(self) -> Self:
        self._telling = asyncio.create_task(self._tell_news())
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._telling.cancel()
        if error is None:
            self._tell()
            await self._report()

    async def _tell_news(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._tell()
            if time.monotonic() - self._reported_at >= _REPORT_SECONDS:
                await self._report()
            await asyncio.sleep(_TELL_SECONDS)

    def _tell(self) -> None:
        if self.curve.latest is not self._told:
            self._told = self.curve.latest
            self._log.info("Progress: %s", self.curve.describe())

    async def _report(self) -> None:
        progress = self.curve.to_json()
        if self._report_to is None or progress is None or self.curve.latest is self._reported:
            return
        self._reported, self._reported_at = self.curve.latest, time.monotonic()
        try:
            # In a thread, so that it is never left half done when the task is cancelled.
            await asyncio.to_thread(self._report_to, progress)
        except Exception as e:  # noqa: BLE001 - whatever it is, the training goes on
            self._log.warning("Progress is not reported any more: %s: %s", type(e).__name__, e)
            self._report_to = None
