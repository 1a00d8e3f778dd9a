"""A training that is interrupted goes on from its last checkpoint, and no other one does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client import ApiException

from tests.cluster.conftest import AirflowUnderTest
from tests.cluster.core import Core, new_owner

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
echo "{\"resumed_from\": ${RESUME_STEP:-0}}" > "$LEARNER_RESULT_FILE"
"""


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
        words_of_both = rf"^\[{ordinal}\] learner: resuming from step 3 \({folder}/step-3\)$"
        assert re.search(words_of_both, core.log.text, re.MULTILINE)
    assert "[0] state 3" in core.log.lines

    again = replace(core, log=type(core.log)())
    outcome = await again.run(owner=new_owner(), **spec)
    assert outcome["result"] == {"resumed_from": 0}  # of the same name, but another run
    assert steps(again) == [1, 2, 3, 4, 5, 6]


def wait_for_output(core_api: CoreV1Api, namespace: str, pod: str, words: str) -> None:
    """Wait until a learner has printed the words."""
    deadline = time.monotonic() + 120
    while True:
        try:
            log = core_api.read_namespaced_pod_log(pod, namespace, container="learner")
        except ApiException:  # not there yet, or not started
            log = ""
        if words in log:
            return
        assert time.monotonic() < deadline, log
        time.sleep(0.2)


def test_a_retry_of_the_task_goes_on_where_the_deleted_learner_was(
    airflow: AirflowUnderTest,
    namespace: str,
    core_api: CoreV1Api,
    store: dict[str, str],
    wait_until_empty: Callable[[], None],
) -> None:
    dag_id = airflow.dag_file(f"""
        with DAG(DAG_ID, schedule=None):
            LearnerStatefulSetOperator(
                task_id="train",
                learners=2,
                image=DIGITS_IMAGE,
                launcher="jax",
                command="python3 /opt/digits/preprocess.py && "
                "python3 /opt/digits/train.py --epochs 200",
                cpus="400m",
                memory="768Mi",
                namespace=NAMESPACE,
                name="digits",
                results={store!r},
                deferrable=True,
                retries=1,
                retry_delay=0,
            )
        """)
    run = airflow.trigger(dag_id)
    wait_for_output(core_api, namespace, "digits-0", "epoch 20")
    core_api.delete_namespaced_pod("digits-1", namespace)
    run.wait_for("success", timeout=240)

    task = run.task("train")
    outcome = task.read_xcom()
    step = outcome["result"]["resumed_from"]
    assert step >= 20
    log = "\n".join(task.read_log())
    assert f"learner: resuming from step {step} " in log
    epochs = [int(n) for n in re.findall(r"\[0\] epoch +(\d+) ", log)]
    assert epochs == list(range(step + 1, 201))
    assert outcome["result"]["accuracy"] > 0.9
    wait_until_empty()
