"""How far a training is, told while it runs."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

from dev.airflow.rest import ENDED_TASK
from tests.cluster.core import Core, abandon, until

# One step a second, told by every learner.
STEPS = """
for step in $(seq 4); do
  echo "{\\"step\\": $step, \\"total\\": 4, \\"loss\\": 0.$((5 - step))}"
  sleep 1
done
echo '{"step": 4, "total": 4, "loss": 0.1, "checkpoint": 3, "phase": "done"}'
"""
CURVE = [{"step": step, "loss": (5 - step) / 10} for step in range(1, 5)]
LAST = {
    "step": 4,
    "total": 4,
    "percent": 100.0,
    "seconds_left": 0,
    "metrics": {"loss": 0.1},
    "checkpoint": 3,
}


async def test_progress_is_taken_out_of_the_log_and_outlives_a_triggerer(core: Core) -> None:
    request = core.request(command=STEPS)
    try_ = core.start(request)
    await until(lambda: "Progress: step 1/4 (25%), loss 0.4" in core.log.lines)
    await asyncio.sleep(1.5)
    await abandon(try_)
    outcome = await core.run(request)
    told = [line for line in core.log.lines if line.startswith("Progress: ")]
    assert told[-1].startswith("Progress: step 4/4 (100%), loss 0.1")
    assert len(told) <= 4  # at the first step, at the last one, and the same of the second try
    spoken = '{"step": 4, "total": 4, "loss": 0.1, "checkpoint": 3, "phase": "done"}'
    assert [core.log.of_learner(ordinal) for ordinal in (0, 1)] == [[spoken], [spoken]]
    assert outcome["curve"] == CURVE
    assert outcome["progress"] == LAST


def test_progress_is_an_xcom_while_a_training_runs_and_a_gauge_and_evidence_of_its_assets(
    airflow: Any, gauges: socket.socket, tmp_path: Path
) -> None:
    # The trainings go on after their first step when they have been looked at.
    wait = "until [ -e $DATA_DIR/seen ]; do sleep 0.2; done"
    arguments = {
        "command": STEPS.replace("sleep 1", wait),
        "learners": 1,
        "cpus": "50m",
        "memory": "64Mi",
        "training_data": {"type": "host_mount", "host_path": str(tmp_path)},
    }
    run = airflow.run(f"""
from airflow.sdk import Asset

with DAG(DAG_ID, schedule=None):
    for home in ("worker", "triggerer"):
        LearnerStatefulSetOperator(
            task_id=home,
            namespace=NAMESPACE,
            image=TINY_IMAGE,
            deferrable=home == "triggerer",
            outlets=[Asset(f"model-of-{{home}}")],
            **{arguments!r},
        )
""")
    homes = {"worker": "running", "triggerer": "deferred"}
    for home, state in homes.items():
        task = run.task(home)
        while task.read_xcom("progress") is None or task.read_state() != state:
            assert task.read_state() not in ENDED_TASK, task.describe()
            time.sleep(0.2)
    (tmp_path / "seen").touch()
    run.wait_for("success")
    expected = set()
    for home in homes:
        task = run.task(home)
        assert task.read_xcom("progress") == LAST
        outcome = task.read_xcom()
        assert (outcome["progress"], outcome["curve"]) == (LAST, CURVE)
        assert "Progress: step 4/4 (100%), loss 0.1" in task.read_log()
        tags = f"dag_id={run.dag_id},task_id={home}"
        for gauge in ("step,{}:4", "percent,{}:100.0", "loss,{}:0.1"):
            expected.add(f"airflow.learner_training.{gauge.format(tags)}|g")
    events = airflow.api.list_asset_events(run)
    assert sorted(event["name"] for event in events) == ["model-of-triggerer", "model-of-worker"]
    for event in events:
        extra = event["extra"]
        (image,) = extra["images"]
        assert "sha256:" in image
        assert [(row["ordinal"], row["exit_code"]) for row in extra["learners"]] == [(0, 0)]
        assert (extra["step"], extra["metrics"], extra["checkpoint"]) == (4, {"loss": 0.1}, 3)
    while expected:  # a missing one is a timeout
        expected.discard(gauges.recv(1024).decode())
