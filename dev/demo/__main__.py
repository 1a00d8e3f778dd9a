"""`python -m dev.demo`: run the pipeline of `dags/train_digits_pipeline.py` and watch it."""

from __future__ import annotations

import re
import signal
import sys
import time

from dev.airflow.access import Admin
from dev.airflow.local import HOME, NAMESPACE, run_airflow
from dev.airflow.rest import ENDED_RUN, Run, Task
from dev.airflow.server import Airflow
from dev.airflow.settings import AirflowError
from dev.demo.picture import draw_in_terminal, draw_svg

DAG_ID = "train_digits_pipeline"
RUN_SECONDS = 900
STOP_SECONDS = 60
_LEARNER_LINE = re.compile(r"\[\d+\] |Progress: ")
_started = time.monotonic()


def main() -> int:
    """Run the demo and return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        say("starting the cluster and Airflow")
        with run_airflow() as (airflow, admin):
            say(f"Airflow is at {airflow.url}")
            return run_pipeline(airflow, admin)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except AirflowError as e:
        say(f"error: {e}")
        return 1


def run_pipeline(airflow: Airflow, admin: Admin) -> int:
    """Run the pipeline, show what happens in it, and tell how good the model is."""
    airflow.wait_for_dag(DAG_ID)
    airflow.api.unpause(DAG_ID)
    run = airflow.api.trigger(DAG_ID)
    say(f"{DAG_ID}: started")
    try:
        state = watch(run)
    except BaseException:
        stop(run, admin)
        raise
    if state != "success":
        say(f"{DAG_ID}: {state}")
        print(run.describe())
        return 1
    curve = run.task("train").read_xcom()["curve"]
    picture = HOME / "loss.svg"
    picture.write_text(draw_svg(curve, "loss"))
    print(f"\n{draw_in_terminal(curve, 'loss')}\n\nThe same as a picture: {picture}")
    (event,) = airflow.api.list_asset_events(run)
    extra = event["extra"]
    print(
        f"\nThe model recognises {extra['accuracy']:.1%} of the digits that it has not seen."
        f"\nIt was trained by {extra['learners']} learners in {extra['epochs']} epochs, and is"
        f" published as the asset {event['name']} ({extra['model']})."
        "\n\n`make ui` starts Airflow again, with this run in it."
    )
    return 0


def stop(run: Run, admin: Admin) -> None:
    """Fail the run, as a person would, and wait until Airflow has removed its learners."""
    say(f"{DAG_ID}: stopping")
    run.stop()
    deadline = time.monotonic() + STOP_SECONDS
    while left := admin.list_leftovers(NAMESPACE):
        if time.monotonic() > deadline:
            say(f"left in namespace {NAMESPACE}: {', '.join(left)}")
            return
        time.sleep(0.5)


def watch(run: Run) -> str:
    """Show the tasks' states and their learners' lines until the run has ended."""
    watchers: dict[str, TaskWatcher] = {}
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        state = run.read_state()  # before the tasks: what they say last is shown, too
        for task in run.list_tasks():
            watchers.setdefault(str(task), TaskWatcher(task)).show_news()
        if state in ENDED_RUN:
            return state
        time.sleep(0.5)
    raise AirflowError(f"the run has not ended after {RUN_SECONDS} s:\n{run.describe()}")


class TaskWatcher:
    """Shows what is new about a task."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._state: str | None = None
        self._shown: set[tuple[str, str]] = set()

    def show_news(self) -> None:
        """Print a new state, and the lines that its learners have printed since."""
        state = self._task.read_state()
        if state in {None, "scheduled", "queued"}:
            return
        entries = self._task.read_log_entries()
        if state != self._state and state not in ENDED_RUN:
            say(f"{self._task}: {state}")
        for entry in entries:
            line = (str(entry.get("timestamp")), str(entry["event"]))
            if line not in self._shown and _LEARNER_LINE.match(line[1]):
                self._shown.add(line)
                say(f"{self._task}: {line[1]}")
        if state != self._state and state in ENDED_RUN:
            say(f"{self._task}: {state}")
        self._state = state


def say(text: str) -> None:
    """Print a line with the time since the start."""
    print(f"[{time.monotonic() - _started:6.1f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
