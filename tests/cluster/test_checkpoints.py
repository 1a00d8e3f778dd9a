"""A training that is interrupted goes on from its last checkpoint, and no other one does."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.core import Core, TaskLog, meanwhile, new_owner, until
from tests.cluster.fixtures import AirflowUnderTest

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api

# Saves each of six steps; fails once, after the third, with the fourth half written.
SIX_STEPS = r"""
[ "$LEARNER_ID" = 1 ] || exit 0
save() {
  mkdir -p "$CHECKPOINT_DIR/step-$1"
  echo "state $1" > "$CHECKPOINT_DIR/step-$1/state"
  echo '{"step": '$1', "files": {"state": {"size": 8}}}' > "$CHECKPOINT_DIR/step-$1/manifest.json"
}
[ -z "$RESUME_FROM" ] || cat "$RESUME_FROM/state"
for step in $(seq $((${RESUME_STEP:-0} + 1)) 6); do
  echo "step $step"
  save "$step"
  if [ "$step" = 3 ] && [ ! -e "$RESULT_DIR/failed" ]; then
    touch "$RESULT_DIR/failed"
    save 4
    : > "$CHECKPOINT_DIR/step-4/state"
    exit 1
  fi
done
echo model > "$RESULT_DIR/model"
echo "{\"resumed_from\": ${RESUME_STEP:-0}}" > "$LEARNER_RESULT_FILE"
"""

SHA256_OF_NOTHING = hashlib.sha256(b"").hexdigest()
SHA256_OF_MODEL = hashlib.sha256(b"model\n").hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    """A store that outlives the learners."""
    return {"type": "host_mount", "host_path": str(tmp_path / "results")}


def steps(core: Core) -> list[int]:
    """The steps that were trained, by the log."""
    return [int(n) for n in re.findall(r"^\[0\] step (\d)$", core.log.text, re.MULTILINE)]


async def test_a_restart_of_the_group_goes_on_from_the_last_whole_checkpoint(
    core: Core, store: dict[str, str]
) -> None:
    spec: dict[str, Any] = {"command": SIX_STEPS, "results": store, "name": "steps"}
    outcome = await core.run(max_restarts=1, restart_on=["ExitCode"], **spec)
    assert outcome["phase"] == "Succeeded"
    assert steps(core) == [1, 2, 3, 4, 5, 6]
    assert outcome["result"] == {"resumed_from": 3}
    folder = "/mnt/results/_wml_checkpoints/core-train-[0-9a-f]{10}"
    words = rf"learner: passing over the checkpoint {folder}/step-4: state does not have 8 bytes"
    for ordinal in (0, 1):
        assert re.search(rf"^\[{ordinal}\] {words}$", core.log.text, re.MULTILINE)
        resuming = rf"^\[{ordinal}\] learner: resuming from step 3 \({folder}/step-3\)$"
        assert re.search(resuming, core.log.text, re.MULTILINE)
    assert "[0] state 3" in core.log.lines

    again = replace(core, log=TaskLog())
    outcome = await again.run(owner=new_owner(), **spec)
    assert outcome["result"] == {"resumed_from": 0}  # of the same name, but another run
    assert steps(again) == [1, 2, 3, 4, 5, 6]


def test_a_retry_of_the_task_says_in_log_and_xcom_where_it_went_on(
    airflow: AirflowUnderTest, store: dict[str, str], wait_until_empty: Callable[[], None]
) -> None:
    results = f"file://{store['host_path']}/steps"
    declared = f"{results}/model"
    run = airflow.run(f"""
        from airflow.sdk import Asset, AssetAlias

        with DAG(DAG_ID, schedule=None):
            LearnerStatefulSetOperator(
                task_id="train",
                learners=2,
                image=TINY_IMAGE,
                command={SIX_STEPS!r},
                cpus="50m",
                memory="64Mi",
                namespace=NAMESPACE,
                results={store!r},
                name="steps",
                artifacts=["model", "fail*"],
                outlets=[Asset({declared!r}), AssetAlias(DAG_ID)],
                deferrable=True,
                retries=1,
                retry_delay=0,
            )
        """)
    run.wait_for("success")
    task = run.task("train")
    assert task.read_xcom()["result"] == {"resumed_from": 3}
    log = task.read_log(2)
    assert any("[0] learner: resuming from step 3 " in line for line in log)
    assert [line for line in log if "[0] step " in line] == [f"[0] step {n}" for n in (4, 5, 6)]
    assert task.read_xcom()["artifacts"] == [
        {"name": "failed", "size": 0, "sha256": SHA256_OF_NOTHING, "uri": f"{results}/failed"},
        {"name": "model", "size": 6, "sha256": SHA256_OF_MODEL, "uri": declared},
    ]
    events = {
        event["uri"]: event["extra"]["sha256"] for event in airflow.api.list_asset_events(run)
    }
    assert events == {
        f"{results}/failed": SHA256_OF_NOTHING,  # by the alias
        declared: SHA256_OF_MODEL,
    }
    wait_until_empty()


async def test_a_killed_learner_costs_the_work_since_the_last_checkpoint(
    core: Core, digits_image: str, core_api: CoreV1Api, store: dict[str, str]
) -> None:
    owner = new_owner()
    spec: dict[str, Any] = {
        "image": digits_image,
        "launcher": "jax",
        "command": "python3 /opt/digits/preprocess.py && python3 /opt/digits/train.py --epochs 100",
        "results": store,
        "cpus": "400m",
        "memory": "768Mi",
        "name": "digits",
        "ready_timeout": 300,
    }
    first = core.request(owner=owner, **spec)
    async with meanwhile(core.run(first)) as training:
        await until(lambda: "[0] epoch 10 " in core.log.text or training.done(), seconds=300)
        # At once: JAX goes on after SIGTERM, to save what it has.
        core_api.delete_namespaced_pod("digits-1", core.namespace, grace_period_seconds=0)
        assert (await training)["phase"] == "Failed"

    second = replace(core, log=TaskLog())
    retry = replace(owner, try_number=2, task_instance_id="second")
    outcome = await second.run(core.request(owner=retry, **spec))
    assert outcome["phase"] == "Succeeded", outcome["message"]
    step = outcome["result"]["resumed_from"]
    assert 10 <= step < 100
    assert f"learner: resuming from step {step} " in second.log.text
    epochs = [int(n) for n in re.findall(r"\[0\] epoch +(\d+) ", second.log.text)]
    assert epochs == list(range(step + 1, 101))
    assert outcome["result"]["accuracy"] > 0.9
