"""Start and stop the cluster's own processes, and only these: each is known by pid and start time.

A record says how a process was started, so that it can be started the same way again.
"""

import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from dev.cluster import host, settings
from dev.cluster.settings import ClusterError


@dataclass(frozen=True)
class Process:
    """A process that was started, whether it still runs or not."""

    name: str
    argv: list[str]
    folder: str  # its working folder
    pid: int
    started: int  # in ticks since boot: with the pid, it tells a process from a later one

    @property
    def is_running(self) -> bool:
        """Whether it is still this process that has the pid, and not as a zombie."""
        state, started = _read_stat(self.pid)
        return started == self.started and state not in {"Z", "X"}

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has suspended it."""
        return self.is_running and _read_stat(self.pid)[0] == "T"

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return settings.LOGS / f"{self.name}.log"

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.is_running:
            os.kill(self.pid, number)

    def stop(self, *, grace: float) -> None:
        """End the process; when it has not ended by itself after the grace time, kill it."""
        if grace > 0:
            self.send_signal(signal.SIGTERM)
            self.send_signal(signal.SIGCONT)  # a suspended one does not see the first signal
            wait_until_ended([self.pid], grace)
        self.send_signal(signal.SIGKILL)
        if not wait_until_ended([self.pid], seconds=10):
            raise ClusterError(f"{self.name} (pid {self.pid}) cannot be killed")


def start(name: str, argv: list[str], *, folder: Path | None = None) -> Process:
    """Start a process that outlives this one, its output in a log file of its name."""
    settings.PROCESSES.mkdir(parents=True, exist_ok=True)
    settings.LOGS.mkdir(parents=True, exist_ok=True)
    working_folder = folder or settings.RUN
    with (settings.LOGS / f"{name}.log").open("ab") as log:
        popen = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=working_folder,
            env=os.environ | {"PATH": host.SEARCH_PATH},
            start_new_session=True,  # signals from the terminal are not for it
        )
    process = Process(name, argv, str(working_folder), popen.pid, _read_stat(popen.pid)[1])
    record = settings.PROCESSES / f"{name}.json"
    part = record.with_suffix(".part")
    part.write_text(json.dumps(asdict(process)))
    part.replace(record)
    return process


def restart(process: Process) -> Process:
    """Start a process the way it was started before."""
    return start(process.name, process.argv, folder=Path(process.folder))


def find(name: str) -> Process | None:
    """Return the process of that name that was started last."""
    record = settings.PROCESSES / f"{name}.json"
    return Process(**json.loads(record.read_text())) if record.exists() else None


def find_by_argument(argument: str) -> list[int]:
    """Return the pids of all processes with that argument in their command line."""
    wanted = argument.encode()
    return [pid for pid in _list_pids() if wanted in _read_command_line(pid)]


def kill(pids: list[int]) -> None:
    """Kill processes at once and wait until they have ended."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if not wait_until_ended(pids, seconds=10):
        raise ClusterError(f"these processes cannot be killed: {pids}")


def wait_until_ended(pids: list[int], seconds: float) -> bool:
    """Return whether all processes ended in time; zombies have."""
    deadline = time.monotonic() + seconds
    while any(_read_stat(pid)[0] not in {"", "Z", "X"} for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _list_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _read_command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _read_stat(pid: int) -> tuple[str, int]:
    """Return a process's state and start time; an empty state when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    fields = stat.rpartition(")")[2].split()  # the name before may contain anything
    return fields[0], int(fields[19])
