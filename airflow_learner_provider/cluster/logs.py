"""The learners' logs, copied live. Best effort: whatever goes wrong here changes no verdict.

What all trainings of a process together may cost is limited, see `SharedLimits`, and so is each
learner, see `Allowance`. Both say what they leave out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from airflow_learner_provider.cluster.api import Api
from airflow_learner_provider.cluster.pace import Pace
from airflow_learner_provider.exceptions import ApiError
from airflow_learner_provider.training.completion import (
    CONTAINER,
    is_record_lost,
    parse_held_log,
)
from airflow_learner_provider.training.observation import (
    Json,
    Observation,
    container_status,
    has_started,
    unix_time,
)
from airflow_learner_provider.training.staging import DOWNLOAD, UPLOAD

log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 60
# A learner may be silent for long. TCP notices when the other end is gone; when that does not help
# a fresh connection does.
_SILENCE_SECONDS = 1800
_LONGEST_LINE = 16 * 1024
_END_LINES = 30
# A holder that has just been started has not written its record yet.
_HELD_ATTEMPTS = 10
# A log that is followed costs a connection, which with TLS takes more memory than the training.
_MOST_FOLLOWED = 100
_MOST_OF_ONE_TRAINING = 32
# Logs that are read once more at the end of their training.
_MOST_ENDING = 16
_LINES_A_SECOND = 2000
_NOTES_A_MINUTE = 3
# Of one learner.
_MOST_LINES_A_SECOND = 1000
_MOST_BYTES = 64 * 1024**2


class SharedLimits:
    """What all logs of a cluster may cost in a process together; what is more has to wait.

    :param places: each is a log that is followed.
    :param ending: each is a log that is read to its end.
    :param lines: of all logs; a triggerer that does nothing but log serves no trigger.
    :param retries: of reading a log that broke off.
    :param notes: of how far a training's logs were copied.
    """

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(_MOST_FOLLOWED)
        self.ending = asyncio.Semaphore(_MOST_ENDING)
        self.lines = Pace(a_second=_LINES_A_SECOND, burst=_LINES_A_SECOND)
        self.retries = Pace(a_second=1, burst=20)
        self.notes = Pace(a_second=_NOTES_A_MINUTE / 60, burst=10)


class Allowance:
    """How much of one log is copied: so many lines a second, and so many bytes in all.

    A second is one of the learner's: a long log that is read at once loses nothing.
    """

    def __init__(self) -> None:
        self.is_used_up = False
        self._bytes = 0
        self._second = ""
        self._lines = 0

    def take(self, time: str, size: int) -> bool:
        """Tell whether a line is copied.

        :param time: when it was written, as RFC 3339.
        :param size: in bytes.
        """
        if (second := time[:19]) != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > _MOST_LINES_A_SECOND:
            return False
        self._bytes += size
        self.is_used_up = self._bytes > _MOST_BYTES
        return not self.is_used_up

    def describe_left_out(self, time: str | None = None) -> str | None:
        """Say what was left out of the second before this time; None when nothing was.

        :param time: of the next line; None is the end of the log.
        """
        left_out = self._lines - _MOST_LINES_A_SECOND
        if left_out <= 0 or (time is not None and time[:19] == self._second):
            return None
        self._lines = 0
        return f"... {left_out} lines left out: more than {_MOST_LINES_A_SECOND} in a second"


async def read_log_end(
    api: Api, namespace: str, pod: Json, *, lines: int = _END_LINES
) -> list[str]:
    """Read the last lines of a learner's log, also of one whose container was started again."""
    status = container_status(pod) or {}
    params = {"tailLines": str(lines)}
    if status.get("restartCount", 0) > 0:
        params["previous"] = "true"
    return [_as_shown(line) for line in await _read_log(api, namespace, pod, params)]


async def _read_log(api: Api, namespace: str, pod: Json, params: dict[str, str]) -> list[str]:
    """Read the lines that a learner has written by now; none when they cannot be had."""
    name, params = pod["metadata"]["name"], {"container": CONTAINER, **params}
    try:
        async with api.stream(
            "Pod", namespace, name, "log", params=params, silence=30, longest=_LONGEST_LINE
        ) as lines:
            return [line.decode(errors="replace") async for line in lines]
    except ApiError as e:
        log.debug("%s", e)
        return []


async def recover_records(api: Api, namespace: str, observation: Observation) -> None:
    """Read how learners ended from their holders' logs, where the pods' status has lost it."""
    for pod in list(observation.pods.values()):
        status, uid = container_status(pod), pod["metadata"]["uid"]
        if status is None or uid in observation.records or not is_record_lost(status):
            continue
        for _ in range(_HELD_ATTEMPTS):
            lines = await _read_log(api, namespace, pod, {})
            if (record := parse_held_log(lines, status)) is not None:
                observation.records[uid] = record
                break
            await asyncio.sleep(_RECONNECT_SECONDS)


def _as_shown(line: str) -> str:
    """A progress bar writes over itself: what stands at the end is what one saw."""
    return line.rstrip("\r").rpartition("\r")[2]


class LogCopier:
    """Copies every learner's log, line by line, from its beginning or from where it was left.

    The logs of the containers that stage its data are copied as well.

    :param shared: with all other logs of this cluster.
    :param write: is given whose line it is, such as "0" or "0 download", the line, and the Unix
        time in seconds at which it was written.
    :param warn: is told when logs are not shown, or later.
    :param positions: time of the last line that was copied of each of these, kept up to date.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        observation: Observation,
        shared: SharedLimits,
        *,
        write: Callable[[str, str, float], None],
        warn: Callable[[str], object],
        positions: dict[str, str],
    ) -> None:
        self.positions = positions
        self._api = api
        self._namespace = namespace
        self._observation = observation
        self._write = write
        self._warn = warn
        self._shared = shared
        self._own_places = asyncio.Semaphore(_MOST_OF_ONE_TRAINING)
        self._waiting: set[tuple[int, str]] = set()
        self._ending = asyncio.Event()
        self._told: set[str] = set()
        self._tasks: dict[tuple[int, str], asyncio.Task[None]] = {}
        self._allowances: dict[str, Allowance] = {}

    def update(self) -> None:
        """Begin to copy from the containers that have started by now."""
        for ordinal, pod in sorted(self._observation.pods.items()):
            for container in (DOWNLOAD, CONTAINER, UPLOAD):
                source = ordinal, container
                if source not in self._tasks and has_started(pod, container):
                    self._tasks[source] = asyncio.create_task(self._copy(*source))

    async def drain(self, ordinals: Iterable[int], *, seconds: float) -> None:
        """Wait for the rest of the logs of learners that have ended, at most so long, and stop."""
        wanted = set(ordinals)
        ended = [source for source in self._tasks if source[0] in wanted]
        self._ending.set()
        for source in self._waiting.intersection(ended):  # those that are followed are read on
            self._tasks[source].cancel()
            self._tasks[source] = asyncio.create_task(self._copy(*source))
        if ended:
            _, late = await asyncio.wait([self._tasks[s] for s in ended], timeout=seconds)
            names = [str(ordinal) for ordinal, name in sorted(ended) if name == CONTAINER]
            late_ones = [n for n in names if self._tasks[int(n), CONTAINER] in late]
            if late_ones:
                which = ", ".join(late_ones[:10]) + (", ..." if len(late_ones) > 10 else "")
                self._warn(f"The end of these learners' logs did not come in time: {which}")
        await self.stop()

    async def stop(self) -> None:
        """Stop copying."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _warn_once(self, about: str, message: str) -> None:
        if about not in self._told:
            self._told.add(about)
            self._warn(message)

    @asynccontextmanager
    async def _place(self, source: tuple[int, str], *, again: bool) -> AsyncIterator[None]:
        """Wait for a place among the logs that are read at once."""
        async with AsyncExitStack() as stack:
            if self._ending.is_set():
                await stack.enter_async_context(self._shared.ending)
            else:
                if self._own_places.locked() or self._shared.places.locked():
                    self._warn_once(
                        "places",
                        "More logs are written than can be followed at once: "
                        f"{_MOST_OF_ONE_TRAINING} of one training, {_MOST_FOLLOWED} of all; some "
                        "learners' lines come later, at the latest when the training has ended",
                    )
                self._waiting.add(source)
                try:
                    if again:
                        await self._shared.retries.take()
                    await stack.enter_async_context(self._own_places)
                    await stack.enter_async_context(self._shared.places)
                finally:
                    self._waiting.discard(source)
            yield

    async def _copy(self, ordinal: int, container: str) -> None:
        failures = 0
        while True:
            pod = self._observation.pods.get(ordinal)
            status = container_status(pod, container) if pod is not None else None
            if pod is None or status is None:
                return
            # After a restart the holder is in the learner's place; its predecessor has the log.
            ended = status.get("restartCount", 0) > 0 and container != DOWNLOAD
            try:
                async with self._place((ordinal, container), again=failures > 0):
                    name = pod["metadata"]["name"]
                    copied = await self._copy_once(name, ordinal, container, previous=ended)
            except ApiError as e:
                if e.status == 403:
                    self._warn_once("rights", f"The learners' output is not shown: {e}")
                    return
                log.debug("%s; trying again", e)
                failures += 1
            else:
                current = self._observation.pods.get(ordinal)
                status = container_status(current, container) if current is not None else None
                if ended or status is None or "running" not in status.get("state", {}):
                    return
                if self._allowance(ordinal, container).is_used_up:
                    return
                failures = 0 if copied else failures + 1
            await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        """Wait before the next attempt; not at the end of the training."""
        longest = _RECONNECT_SECONDS if self._ending.is_set() else _LONGEST_PAUSE_SECONDS
        pause = min(_RECONNECT_SECONDS * 2 ** max(failures - 1, 0), longest)
        pause *= random.uniform(0.5, 1.5)  # noqa: S311 - jitter
        if self._ending.is_set():
            await asyncio.sleep(pause)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._ending.wait()

    def _allowance(self, ordinal: int, container: str) -> Allowance:
        return self._allowances.setdefault(_name(ordinal, container), Allowance())

    async def _copy_once(self, pod: str, ordinal: int, container: str, *, previous: bool) -> bool:
        """Copy to the end of the stream; return whether there was anything."""
        whose = _name(ordinal, container)
        allowance = self._allowance(ordinal, container)
        after = begun = self.positions.get(whose, "")
        params = {"container": container, "timestamps": "true"}
        params["previous" if previous else "follow"] = "true"
        if after:
            params["sinceTime"] = after
        async with self._api.stream(
            "Pod",
            self._namespace,
            pod,
            "log",
            params=params,
            silence=_SILENCE_SECONDS,
            longest=_LONGEST_LINE,
        ) as lines:
            async for line in lines:
                head, _, text = line.partition(b" ")
                time = head.decode(errors="replace")
                # sinceTime counts in whole seconds, so some lines come a second time.
                if time <= after:
                    continue
                if (left_out := allowance.describe_left_out(time)) is not None:
                    self._write(whose, left_out, unix_time(time))
                if allowance.take(time, len(line)):
                    await self._shared.lines.take()
                    shown = _as_shown(text.decode(errors="replace"))
                    self._write(whose, shown, unix_time(time))
                elif allowance.is_used_up:
                    self._write(whose, _USED_UP, unix_time(time))
                    break
                self.positions[whose] = after = time
        if (left_out := allowance.describe_left_out()) is not None:
            self._write(whose, left_out, unix_time(after))
        return after != begun


_USED_UP = f"... the rest of the log is left out: it has more than {_MOST_BYTES // 1024**2} MiB"


def _name(ordinal: int, container: str) -> str:
    return str(ordinal) if container == CONTAINER else f"{ordinal} {container}"
