"""A triggerer without scheduler and database: Airflow's own runner of triggers, told what to run.

It reads a line of JSON for each trigger, or a request for its figures, and writes one for each
event; `Triggerer` is its other end.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

Json = dict[str, Any]

_ANSWER_SECONDS = 120  # it imports Airflow first


@dataclass(frozen=True)
class Figures:
    """What a triggerer needs.

    :param rss: resident memory in KB.
    :param peak: the most that it ever was.
    :param cpu: seconds that it has computed.
    :param lag: the longest time that its event loop was not free, in seconds, since last asked.
    :param sockets: that are open.
    """

    rss: int
    peak: int
    cpu: float
    lag: float
    sockets: int


class Triggerer:
    """A running triggerer process.

    :param events: Unix time and payload of each trigger's event, by the trigger's number.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.events: dict[int, tuple[float, Json]] = {}
        self._process = process
        self._figures: asyncio.Queue[Figures] = asyncio.Queue()
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    def start(self, number: int, trigger: str, arguments: Json) -> None:
        """Run a trigger: the path of its class, and what it is called with."""
        self._tell({"number": number, "trigger": trigger, "arguments": arguments})

    async def figures(self) -> Figures:
        """Ask for its figures.

        :raises TimeoutError: it does not answer.
        """
        self._tell({})
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await self._figures.get()

    async def wait_for(self, numbers: list[int], *, seconds: float) -> None:
        """Wait for the events of these triggers."""
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: self.events.keys() >= set(numbers))

    async def end(self) -> None:
        """End it; what its triggers made stays."""
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()
        await self._reader

    def _tell(self, message: Json) -> None:
        if self._process.stdin is None:
            raise RuntimeError("no pipe to the triggerer")
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        if self._process.stdout is None:
            raise RuntimeError("no pipe from the triggerer")
        async for line in self._process.stdout:
            message = json.loads(line)
            if "number" in message:
                self.events[message["number"]] = message["at"], message["payload"]
                async with self._news:
                    self._news.notify_all()
            else:
                self._figures.put_nowait(Figures(**message))


@asynccontextmanager
async def run_triggerer(
    connections: Mapping[str, Json], *, log: Path = Path(os.devnull)
) -> AsyncIterator[Triggerer]:
    """Run a triggerer.

    :param connections: extras of connections of type `kubernetes`, by their ids.
    :param log: what its triggers log, a line of JSON each.
    """
    with TemporaryDirectory(prefix="triggerer-") as home:
        environment = os.environ | {"AIRFLOW_HOME": home}
        for conn_id, extra in connections.items():
            value = json.dumps({"conn_type": "kubernetes", "extra": extra})
            environment[f"AIRFLOW_CONN_{conn_id.upper()}"] = value
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.triggerer", str(log),
            env=environment, stdin=pipe, stdout=pipe, limit=2**24,
        )  # fmt: skip
        triggerer = Triggerer(process)
        try:
            await triggerer.figures()
            yield triggerer
        finally:
            await triggerer.end()


class _Events(deque[Any]):
    """Where Airflow's runner puts events."""

    def append(self, entry: Any) -> None:
        payload = entry.event.payload
        _say({"number": entry.trigger_id, "at": time.time(), "payload": payload})


def _say(message: Json) -> None:
    sys.stdout.write(json.dumps(message, default=str) + "\n")
    sys.stdout.flush()


class _Watchdog:
    """Notices when the event loop is not free."""

    def __init__(self) -> None:
        self._longest = 0.0

    async def run(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            self._longest = max(self._longest, time.monotonic() - before - 0.05)

    def take(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest


async def _serve(log: Path) -> None:
    from airflow.jobs.triggerer_job_runner import TriggerRunner
    from airflow.sdk.log import configure_logging

    with log.open("ab", buffering=0) as output:
        configure_logging(json_output=True, output=output)
        runner = TriggerRunner()
        runner.events = _Events()
        watchdog = _Watchdog()
        tasks = {asyncio.create_task(watchdog.run())}
        reader = asyncio.StreamReader(limit=2**24)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            message = json.loads(line)
            if message:
                task = asyncio.create_task(_run(runner, **message))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                _say(_read_figures(watchdog))


async def _run(runner: Any, number: int, trigger: str, arguments: Json) -> None:
    module, _, name = trigger.rpartition(".")
    instance = getattr(importlib.import_module(module), name)(**arguments)
    instance.trigger_id = number
    instance.task_instance = SimpleNamespace(
        id=number, dag_id="d", task_id="t", run_id="r", try_number=1, map_index=-1,
        context_carrier=None,
    )  # fmt: skip
    runner.triggers[number] = {"name": f"ID {number}", "is_watcher": False, "events": 0}
    try:
        await runner.run_trigger(number, instance)
    except Exception:
        traceback.print_exc()
        raise
    del runner.triggers[number]


def _read_figures(watchdog: _Watchdog) -> Json:
    lag = watchdog.take()
    status = Path("/proc/self/status").read_text()
    return {
        "rss": int(status.partition("VmRSS:")[2].split()[0]),
        "peak": int(status.partition("VmHWM:")[2].split()[0]),
        "cpu": time.process_time(),
        "lag": lag,
        "sockets": sum(link.is_socket() for link in Path("/proc/self/fd").iterdir()),
    }


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
