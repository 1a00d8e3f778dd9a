"""The learners' logs, copied live. Best effort: whatever goes wrong here changes no verdict."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from airflow_learner_provider.cluster.api import Api
from airflow_learner_provider.exceptions import ApiError
from airflow_learner_provider.training.completion import CONTAINER
from airflow_learner_provider.training.observation import (
    Json,
    Observation,
    container_status,
    has_started,
)
from airflow_learner_provider.training.staging import DOWNLOAD, UPLOAD

log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.5
# A learner may be silent for long; then a fresh connection shows whether the old one was dead.
_SILENCE_SECONDS = 300
_LONGEST_LINE = 16 * 1024
_END_LINES = 30


async def read_log_end(api: Api, namespace: str, pod: Json) -> list[str]:
    """Read the last lines of a learner's log, also of one whose container was started again."""
    status = container_status(pod) or {}
    params = {"container": CONTAINER, "tailLines": str(_END_LINES)}
    if status.get("restartCount", 0) > 0:
        params["previous"] = "true"
    name = pod["metadata"]["name"]
    try:
        async with api.stream(
            "Pod", namespace, name, "log", params=params, silence=30, longest=_LONGEST_LINE
        ) as lines:
            return [_as_shown(line.decode(errors="replace")) async for line in lines]
    except ApiError as e:
        log.debug("%s", e)
        return []


def _as_shown(line: str) -> str:
    """A progress bar writes over itself: what stands at the end is what one saw."""
    return line.rstrip("\r").rpartition("\r")[2]


class LogCopier:
    """Copies every learner's log, line by line, from its beginning or from where it was left.

    The logs of the containers that stage its data are copied as well.

    :param write: is given whose line it is, such as "0" or "0 download", the line, and the Unix
        time in seconds at which it was written.
    :param warn: is told, once, when the logs may not be read.
    :param positions: time of the last line that was copied of each of these, kept up to date.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        observation: Observation,
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
        self._is_refused = False
        self._tasks: dict[tuple[int, str], asyncio.Task[None]] = {}

    def update(self) -> None:
        """Begin to copy from the containers that have started by now."""
        for ordinal, pod in self._observation.pods.items():
            for container in (DOWNLOAD, CONTAINER, UPLOAD):
                source = ordinal, container
                if source not in self._tasks and has_started(pod, container):
                    self._tasks[source] = asyncio.create_task(self._copy(*source))

    async def drain(self, ordinals: Iterable[int], *, seconds: float) -> None:
        """Wait for the rest of the logs of learners that have ended, at most so long, and stop."""
        wanted = set(ordinals)
        ending = [task for (ordinal, _), task in self._tasks.items() if ordinal in wanted]
        if ending:
            await asyncio.wait(ending, timeout=seconds)
        await self.stop()

    async def stop(self) -> None:
        """Stop copying."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _copy(self, ordinal: int, container: str) -> None:
        while True:
            pod = self._observation.pods.get(ordinal)
            status = container_status(pod, container) if pod is not None else None
            if pod is None or status is None:
                return
            # After a restart the holder is in the learner's place; its predecessor has the log.
            ended = status.get("restartCount", 0) > 0 and container != DOWNLOAD
            try:
                await self._copy_once(pod["metadata"]["name"], ordinal, container, previous=ended)
            except ApiError as e:
                if e.status == 403:
                    if not self._is_refused:
                        self._is_refused = True
                        self._warn(f"The learners' output is not shown: {e}")
                    return
                log.debug("%s; trying again", e)
            else:
                current = self._observation.pods.get(ordinal)
                status = container_status(current, container) if current is not None else None
                if ended or status is None or "running" not in status.get("state", {}):
                    return
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _copy_once(self, pod: str, ordinal: int, container: str, *, previous: bool) -> None:
        """Copy to the end of the stream."""
        whose = str(ordinal) if container == CONTAINER else f"{ordinal} {container}"
        after = self.positions.get(whose, "")
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
                time, _, text = line.decode(errors="replace").partition(" ")
                # sinceTime counts in whole seconds, so some lines come a second time.
                if time > after:
                    self.positions[whose] = after = time
                    at = datetime.fromisoformat(time).timestamp()
                    self._write(whose, _as_shown(text), at)
