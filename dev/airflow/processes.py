"""The processes of one Airflow home: all carry the home in their environment, children included.

Pid files would not do: the scheduler's workers and their tasks have process groups of their own and
outlive a scheduler that is killed.
"""

import os
import signal
import time
from pathlib import Path

from dev.airflow.settings import COMPONENT_VARIABLE, HOME_VARIABLE, OWNER_VARIABLE, AirflowError


def find(home: Path, component: str | None = None) -> list[int]:
    """Return the pids of a home's processes, or of those that one component started."""
    wanted = {HOME_VARIABLE: str(home)}
    if component is not None:
        wanted[COMPONENT_VARIABLE] = component
    return [pid for pid in _list_pids() if wanted.items() <= _read_environment(pid).items()]


def kill_orphans() -> None:
    """Kill what was to end with a process that is gone, which could not see to it."""
    for pid in _list_pids():
        owner = _read_environment(pid).get(OWNER_VARIABLE)
        if owner is not None and not Path(f"/proc/{owner}").exists():
            send_signal(pid, signal.SIGKILL)


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal, unless the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def kill(home: Path, component: str | None = None) -> None:
    """Kill a home's processes, or those that one component started, until none is left."""
    deadline = time.monotonic() + 20
    while pids := find(home, component):  # more than once: they may be starting others
        for pid in pids:
            send_signal(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise AirflowError(f"these processes cannot be killed: {pids}")
        time.sleep(0.02)


def read_parent(pid: int) -> int:
    """Return the pid of a process's parent."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])  # the name before may contain anything


def _list_pids() -> list[int]:
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _read_environment(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # it ended, or is another's
        return {}
    pairs = (entry.partition("=") for entry in text.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}
