"""The wrapper, run by bash as kubelet would start it again and again in one pod."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_learner_provider.training.completion import (
    HOLDER_SCRIPT,
    WRAPPER,
    ExitRecord,
    is_record_lost,
    parse_exit_record,
    parse_held_log,
)
from tests.unit.training.cluster_json import Json, end, ended, running, waiting
from tests.unit.training.cluster_json import time as time_after

SECONDS = 20


class Pod:
    """A pod's life: its emptyDir, and the starts of the learner's container in it."""

    def __init__(self, folder: Path, command: str, **env: str) -> None:
        self.folder = folder
        self.result = folder / "termination-log"
        # The folder stands for the volume that is mounted at /job.
        self.script = WRAPPER.replace("/job/", f"{folder}/")
        self.env = {
            "PATH": os.environ["PATH"],
            "FOLDER": str(folder),
            "TRAINING_COMMAND": command,
            "LEARNER_RESULT_FILE": str(self.result),
            "LEARNER_ORDINAL": "0",
            "NUM_LEARNERS": "1",
            "RESULT_DIR": str(folder / "results"),
        } | env

    def start(self) -> subprocess.Popen[str]:
        """Start the container; each start has a new, empty termination message."""
        self.result.write_text("")
        return subprocess.Popen(
            ["bash", "-c", self.script], env=self.env, stdout=subprocess.PIPE, text=True
        )

    def run(self) -> int:
        """Start the container and wait for its end."""
        with self.start() as process:
            return process.wait(SECONDS)

    def hold(self) -> int:
        """Start the container, see that it stays, and end it."""
        with self.start() as process:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.terminate()
            return process.wait(SECONDS)

    def wait_for(self, name: str) -> None:
        """Wait until the command has written a file."""
        deadline = time.monotonic() + SECONDS
        while not (self.folder / name).exists():
            assert time.monotonic() < deadline, f"{name} was not written"
            time.sleep(0.02)


@pytest.fixture
def pod(tmp_path: Path) -> Callable[..., Pod]:
    def create(command: str, **env: str) -> Pod:
        return Pod(tmp_path, command, **env)

    return create


@pytest.mark.parametrize("code", [0, 7, 255])
def test_command_runs_once_and_its_code_is_told_again(pod: Callable[..., Pod], code: int) -> None:
    learner = pod(f'echo run >> "$FOLDER/runs"; exit {code}')
    assert [learner.run(), learner.hold(), learner.run(), learner.hold()] == [code, 0, code, 0]
    assert (learner.folder / "runs").read_text() == "run\n"


def test_result_is_told_again(pod: Callable[..., Pod]) -> None:
    learner = pod("""echo '{"loss": 0.1}' > "$LEARNER_RESULT_FILE" """)
    learner.run()
    first = learner.result.read_text()
    learner.hold()
    assert learner.result.read_text() == ""
    learner.run()
    assert learner.result.read_text().strip() == first.strip() == '{"loss": 0.1}'


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("result", ["", "one", "one\n\nthree"])
def test_holder_writes_the_record_to_its_log(
    pod: Callable[..., Pod], code: int, result: str
) -> None:
    learner = pod(f"""printf '%s' '{result}' > "$LEARNER_RESULT_FILE"; exit {code}""")
    learner.run()
    with learner.start() as process:
        assert process.stdout is not None
        log = [process.stdout.readline().rstrip("\n") for _ in range(2 + result.count("\n"))]
        process.terminate()
    assert parse_held_log(log, running(restarts=1)) == record(
        code, at=3, message=result, started=None, held=True
    )


@pytest.mark.parametrize("lines", [[], ["learner: exit code 0"], ["of a training", "", ""]])
def test_log_without_a_whole_record_tells_none(lines: list[str]) -> None:
    assert parse_held_log(lines, running(restarts=1)) is None


def test_command_that_was_killed_with_its_container_has_failed(pod: Callable[..., Pod]) -> None:
    learner = pod('echo run >> "$FOLDER/runs"; exec sleep 30')
    with learner.start() as process:
        learner.wait_for("runs")
        subprocess.run(["pkill", "--signal", "KILL", "--parent", str(process.pid)], check=True)
        process.kill()
    assert [learner.hold(), learner.run()] == [0, 137]
    assert (learner.folder / "runs").read_text() == "run\n"


def test_signal_that_ended_the_command_is_in_its_code(pod: Callable[..., Pod]) -> None:
    assert pod("kill -SEGV $$").run() == 128 + signal.SIGSEGV


def test_terminate_reaches_the_whole_group_and_is_waited_for(pod: Callable[..., Pod]) -> None:
    learner = pod("""
        trap 'echo > "$FOLDER/child"; exit 5' TERM
        (trap 'sleep 0.4; echo > "$FOLDER/grandchild"; exit' TERM
         echo > "$FOLDER/up"; while :; do sleep 0.05; done) &
        wait
    """)
    with learner.start() as process:
        learner.wait_for("up")
        process.terminate()
        assert process.wait(SECONDS) == 5
    assert (learner.folder / "child").exists()
    assert (learner.folder / "grandchild").exists()
    assert (learner.folder / "learner.exit").read_text() == "5\n"


def test_command_that_takes_no_notice_ends_with_the_signal(pod: Callable[..., Pod]) -> None:
    learner = pod('echo > "$FOLDER/up"; exec sleep 30')
    with learner.start() as process:
        learner.wait_for("up")
        process.terminate()
        assert process.wait(SECONDS) == 128 + signal.SIGTERM


def test_command_finds_its_place(pod: Callable[..., Pod]) -> None:
    learner = pod(
        'cd "$RESULT_DIR" && cd "$CHECKPOINT_DIR" && echo "$LEARNER_ID" && ! read -r line',
        LEARNER_ORDINAL="4",
        CHECKPOINT_DIR="/tmp",
    )
    with learner.start() as process:
        assert process.wait(SECONDS) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "5\n"


def test_command_starts_when_the_first_learner_has_a_name(pod: Callable[..., Pod]) -> None:
    assert pod("exit 3", NUM_LEARNERS="2", FIRST_LEARNER="localhost").run() == 3


def test_terminate_ends_the_wait_for_a_name(pod: Callable[..., Pod]) -> None:
    learner = pod('echo > "$FOLDER/up"', NUM_LEARNERS="2", FIRST_LEARNER="nobody.invalid")
    with learner.start() as process:
        learner.wait_for("learner.starts")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.terminate()
        assert process.wait(SECONDS) == 128 + signal.SIGTERM
    assert not (learner.folder / "up").exists()


@pytest.mark.parametrize(
    ("ended", "uploaded", "code", "message"),
    [(0, 0, 0, "result"), (0, 9, 74, "no such bucket"), (7, 0, 7, "result"), (7, 9, 7, "result")],
)
def test_record_speaks_of_the_upload_too(
    pod: Callable[..., Pod], ended: int, uploaded: int, code: int, message: str
) -> None:
    learner = pod(
        f'printf result > "$LEARNER_RESULT_FILE"; exit {ended}', RESULT_BUCKET_URL="s3:results"
    )
    with learner.start() as process:
        learner.wait_for("learner.ended")
        (learner.folder / "upload.error").write_text("no such bucket")
        (learner.folder / "upload.exit").write_text(f"{uploaded}\n")
        assert process.wait(SECONDS) == code
    assert learner.result.read_text() == message


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_holder_idles_until_it_is_told_to_end(shell: str) -> None:
    with subprocess.Popen([shell, "-c", HOLDER_SCRIPT]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.terminate()
        assert process.wait(SECONDS) == 0


def record(code: int, at: float = 10, **changes: object) -> ExitRecord:
    reason = "Error" if code else "Completed"
    known = ExitRecord(code, reason, "", started=time_after(3), finished=time_after(at))
    return replace(known, **changes)  # type: ignore[arg-type]


START_ERROR = end(128, "StartError") | {"startedAt": "1970-01-01T00:00:00Z"}
STATUSES: dict[str, tuple[Json, ExitRecord | None]] = {
    "waits for its first start": (waiting(), None),
    "runs": (running(), None),
    "has ended": (ended(3), record(3)),
    "has ended with a result": (ended(0, message="7"), record(0, message="7")),
    "is held": (running(restarts=1, last=end(3)), record(3, held=True)),
    "was held": (ended(0, at=20, restarts=1, last=end(3)), record(3, held=True)),
    "was held, and waits": (waiting("CrashLoopBackOff", restarts=1, last=end(0, at=20)), None),
    "tells again": (running(restarts=2, last=end(0, at=20)), None),
    "has told again": (
        ended(3, at=30, restarts=2, last=end(0, at=20)),
        record(3, 30, held=True),
    ),
    "has told again, and waits": (
        waiting("CrashLoopBackOff", restarts=2, last=end(3, at=30)),
        record(3, 30, held=True),
    ),
    "is held again": (running(restarts=3, last=end(3, at=30)), record(3, 30, held=True)),
    "could not start": (
        waiting("RunContainerError", last=START_ERROR),
        record(128, reason="StartError", started=None),
    ),
    "could not start twice": (
        waiting("RunContainerError", restarts=1, last=START_ERROR),
        record(128, reason="StartError", started=None, held=True),
    ),
}


@pytest.mark.parametrize("status", STATUSES)
def test_record_is_what_ended_an_odd_start(status: str) -> None:
    container, expected = STATUSES[status]
    assert parse_exit_record(container) == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (running(), False),
        (running(restarts=1), True),
        (running(restarts=1, last=end(3)), False),
        (running(restarts=2), False),
        (running(restarts=3), True),
        (waiting("CrashLoopBackOff", restarts=1), False),
    ],
)
def test_record_is_lost_when_only_the_holder_is_left(*, container: Json, expected: bool) -> None:
    assert is_record_lost(container) is expected
