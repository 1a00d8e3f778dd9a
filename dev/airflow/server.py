"""Start and stop a real Airflow: each component in a process of its own, as in production."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Self

from dev.airflow import processes
from dev.airflow.rest import Api, Run, Task
from dev.airflow.settings import (
    ADMIN,
    COMMANDS,
    COMPONENT_VARIABLE,
    DEFAULT_COMPONENTS,
    EXECUTION_API,
    JOB_TYPES,
    OWNER_VARIABLE,
    AirflowError,
    build_environment,
)

START_SECONDS = 300
STOP_SECONDS = 6
GRACE_SECONDS = 90


class Airflow:
    """An Airflow with a folder of its own for database, logs and DAGs.

    As a context manager it ends with the block, or, when this process is killed, with the next
    start of any. `start()` alone leaves it running; a later `Airflow(home).stop()` ends it.

    :param home: its folder; what still runs there is ended at start.
    :param dags: the DAGs' folder; by default one in its home.
    :param port: of the API server; a free one where it is taken, or none is given.
    :param paused: whether a new DAG waits until somebody unpauses it.
    :param workers: how many tasks can run at once.
    :param environment: variables for all its processes.
    :param users: roles by the names of those who can log in, with the name as the password; one is
        "admin". With none of them everybody is an administrator.
    """

    def __init__(
        self,
        home: Path,
        *,
        dags: Path | None = None,
        port: int | None = None,
        paused: bool = False,
        workers: int = 8,
        environment: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home.resolve()
        self.dags = dags or self.home / "dags"
        self._ports = {
            "api-server": _find_free_port(port or 0),
            EXECUTION_API: _find_free_port(0),
        }
        self.url, execution_url = (f"http://127.0.0.1:{port}" for port in self._ports.values())
        self._users = dict(users or {})
        self.api = self.log_in()
        self._environment = build_environment(
            self.home,
            dags=self.dags,
            url=self.url,
            execution_url=execution_url,
            paused=paused,
            workers=workers,
            users=self._users,
        ) | dict(environment or {})
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._environment[OWNER_VARIABLE] = str(os.getpid())
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *components: str) -> None:
        """Start components, all that make an Airflow by default, and wait until they work."""
        if not components:
            processes.kill_orphans()
            processes.kill(self.home)
            self.api = self.log_in()  # the one before may be closed
            self.dags.mkdir(parents=True, exist_ok=True)
            passwords = json.dumps({name: name for name in self._users})
            (self.home / "passwords.json").write_text(passwords)
            self._migrate()
        started = datetime.now(UTC)
        names = components or DEFAULT_COMPONENTS
        try:
            for name in names:
                self._spawn(name)
            for name in names:
                self._wait_until_up(name, started)
        except BaseException:
            if not components:
                self.stop()
            raise

    def log_in(self, name: str = ADMIN) -> Api:
        """Return the API as one of the users sees it."""
        return Api(self.url, name if self._users else None)

    def stop(self) -> None:
        """End all its processes: they are asked to, and killed when they have not in time."""
        self.api.close()
        for child in self._children.values():
            child.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        # What another process has started is not asked: only the killing below finds it.
        while self._children and processes.find(self.home) and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.05)
        processes.kill(self.home)
        for child in self._children.values():
            child.wait(timeout=STOP_SECONDS)
        self._children.clear()

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End one component and wait until it is gone.

        SIGKILL ends all that it started at the same moment, as if its machine had lost power; any
        other signal goes to the component alone, which has to end its own. When it has not in
        time, it is killed, as Kubernetes does: a scheduler can wait forever for idle workers.
        """
        child = self._children[component]
        if number is not signal.SIGKILL:
            child.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=GRACE_SECONDS)
        processes.kill(self.home, component)
        child.wait(timeout=STOP_SECONDS)
        del self._children[component]

    def suspend(self, component: str) -> None:
        """Freeze a component and all that it started, until `resume`."""
        for pid in processes.find(self.home, component):
            processes.send_signal(pid, signal.SIGSTOP)

    def resume(self, component: str) -> None:
        """Let a frozen component go on."""
        for pid in processes.find(self.home, component):
            processes.send_signal(pid, signal.SIGCONT)

    def mend(self) -> None:
        """Bring it back to how it was started, whatever has been killed, frozen or added since."""
        for component in list(self._children):
            self.resume(component)
            if component not in DEFAULT_COMPONENTS:
                self.kill(component)
        self._reap()
        if missing := [name for name in DEFAULT_COMPONENTS if name not in self._children]:
            self.start(*missing)

    def find_processes(self, component: str | None = None) -> list[int]:
        """Return the pids of a component and of all that it started, or of the whole Airflow."""
        return processes.find(self.home, component)

    def find_task_process(self, task: Task) -> int:
        """Return the pid of the process in which a running task's `execute` is.

        Its parent is the supervisor, which reports to Airflow how the task ended.
        """
        pid = task.read()["pid"]
        if pid not in processes.find(self.home, "scheduler"):
            raise AirflowError(f"{task} does not run: no process {pid} of the scheduler's")
        return int(pid)

    def find_task_supervisor(self, task: Task) -> int:
        """Return the pid of the process that watches a running task's process."""
        return processes.read_parent(self.find_task_process(task))

    def read_output(self, component: str) -> str:
        """Return what a component has printed."""
        return self._output(component).read_text(errors="replace")

    def wait_for_dag(self, dag_id: str, *, since: float = 0, timeout: float = 180) -> None:
        """Wait until a DAG has been read from its file.

        :param since: Unix time in seconds; errors from before it are those of an earlier file.
        :raises AirflowError: the file of that name cannot be read, or the time is up.
        """
        deadline = time.monotonic() + timeout
        while self.api.read_dag(dag_id) is None:
            errors = self.api.list_import_errors(since=since)
            if any(Path(name).stem == dag_id for name in errors) or time.monotonic() > deadline:
                reasons = "\n".join(f"{name}: {text}" for name, text in errors.items())
                raise AirflowError(f"no DAG {dag_id} in {self.dags}\n{reasons}")
            time.sleep(0.1)

    def wait_for_run(
        self, dag_id: str, *, beside: Collection[Run] = (), timeout: float = 180
    ) -> Run:
        """Wait for a run that somebody else makes of a DAG.

        :param beside: runs that were there before.
        """
        deadline = time.monotonic() + timeout
        while not (runs := [run for run in self.api.list_runs(dag_id) if run not in beside]):
            if time.monotonic() > deadline:
                raise AirflowError(f"no run of {dag_id} after {timeout} s")
            time.sleep(0.1)
        return runs[0]

    def _migrate(self) -> None:
        """Make the database unless it is there in this version."""
        done = self.home / f"database-{version('apache-airflow-core')}"
        if done.exists():
            return
        result = subprocess.run(
            _build_command("db", "migrate"),
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise AirflowError(f"airflow db migrate failed:\n{result.stdout}{result.stderr}")
        database = sqlite3.connect(self.home / "airflow.db")
        # Readers and a writer do not wait for each other; stays so in the file.
        database.execute("PRAGMA journal_mode=WAL")
        database.close()
        done.touch()

    def _spawn(self, component: str) -> None:
        if component in self._children:
            raise AirflowError(f"{component} has been started already")
        arguments = list(COMMANDS[component])
        if component in self._ports:
            arguments += ["--port", str(self._ports[component])]
        with self._output(component).open("ab") as output:
            self._children[component] = subprocess.Popen(
                _build_command(*arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.home,
                env=self._environment | {COMPONENT_VARIABLE: component},
                start_new_session=True,  # signals from the terminal are not for it
            )

    def _wait_until_up(self, component: str, started: datetime) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._is_up(component, started):
            code = self._children[component].poll()
            if code is not None or time.monotonic() > deadline:
                state = f"ended with {code}" if code is not None else "does not answer"
                last = "\n".join(self.read_output(component).splitlines()[-30:])
                raise AirflowError(f"Airflow's {component} {state}:\n{last}")
            time.sleep(0.1)

    def _is_up(self, component: str, started: datetime) -> bool:
        if component == EXECUTION_API:
            return _answers(self._ports[component])
        if not self.api.is_up():
            return False
        if component not in JOB_TYPES:
            return True
        jobs = self.api.list_jobs(JOB_TYPES[component])
        return any(datetime.fromisoformat(job["start_date"]) >= started for job in jobs)

    def _reap(self) -> None:
        for name in list(self._children):
            if self._children[name].poll() is not None:
                del self._children[name]

    def _output(self, component: str) -> Path:
        return self.home / f"{component}.log"


def _build_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _find_free_port(wanted: int) -> int:
    """Return the wanted port of the loopback address, or a free one where it is taken."""
    try:
        with socket.create_server(("127.0.0.1", wanted)) as server:
            port: int = server.getsockname()[1]
            return port
    except OSError:
        return _find_free_port(0)
