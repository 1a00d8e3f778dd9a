"""Each launcher starts a real distributed training: PyTorch, TensorFlow and Open MPI, between pods.

(JAX is what the trainings of test_dags.py and test_checkpoints.py run.)
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.core import Core, TaskLog
from tests.cluster.fixtures import AirflowUnderTest

DAGS = Path(__file__).parents[2] / "dags"

FOUND = {"slope": 3.0, "intercept": 1.0}


@pytest.fixture
def frameworks(core: Core, frameworks_image: str) -> Core:
    """Runs trainings in the image with the frameworks."""
    return replace(core, image=frameworks_image)


async def test_one_process_in_each_learner_finds_the_others_without_torchrun(
    frameworks: Core, wait_until_empty: Callable[[], None]
) -> None:
    outcome = await frameworks.run(
        launcher="torchrun",
        command="python3 /opt/frameworks/train_torch.py",
        cpus="300m",
        memory="768Mi",
    )
    assert outcome["phase"] == "Succeeded", outcome["message"]
    assert outcome["result"] == FOUND | {"processes": 2}
    assert_all_trained(frameworks.log.text, processes=2)
    await asyncio.to_thread(wait_until_empty)


def assert_all_trained(log: str, *, processes: int) -> None:
    """Each process has said what it found.

    Processes of one learner write into one stream, sometimes two into one line.
    """
    found = re.findall(rf"process (\d+) of {processes} found ", log)
    assert sorted(map(int, found)) == list(range(processes))


SECURITY = {
    "spec": {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}},
}
# Where a process is, whether it has its own learner's environment, and who else gets in.
LOOK_AROUND = """
mpirun bash -c 'echo "rank $OMPI_COMM_WORLD_RANK: learner $LEARNER_ID, $(id -un), $PWD, $WORDS"'
other=$LEARNER_NAME_PREFIX-1.$LEARNER_NAME_PREFIX
ssh "$other" 'echo "plain ssh: learner $LEARNER_ID"'
ssh-keygen -q -t ed25519 -N '' -f /job/stranger
/usr/bin/ssh -F none -p 2222 -o BatchMode=yes -o StrictHostKeyChecking=no -o LogLevel=ERROR \
  -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -i /job/stranger "$other" true 2>&1
echo "learner $(cut -d' ' -f1-2 /job/stranger.pub)" > /job/known
/usr/bin/ssh -F /job/ssh/ssh_config -o UserKnownHostsFile=/job/known "$other" true 2>&1
"""


async def test_mpi_processes_have_their_learners_environment_and_only_learners_get_in(
    frameworks: Core,
) -> None:
    async def look_around(user: str, pod_template: dict[str, Any]) -> None:
        core = replace(frameworks, log=TaskLog())
        outcome = await core.run(
            launcher="mpi",
            command=f"cd /opt/frameworks{LOOK_AROUND}true",
            env={"WORDS": 'it\'s "fine" $HOME'},
            cpus="100m",
            memory="128Mi",
            pod_template=pod_template,
        )
        assert outcome["phase"] == "Succeeded", outcome["message"]
        said = [line for line in core.log.lines if line.startswith("[0] ")]
        for ordinal in (0, 1):
            words = f'learner {ordinal + 1}, {user}, /opt/frameworks, it\'s "fine" $HOME'
            assert f"[0] rank {ordinal}: {words}" in said
        assert "[0] plain ssh: learner 2" in said
        assert any("Permission denied (publickey)" in line for line in said)
        assert any("Host key verification failed" in line for line in said)
        assert "PRIVATE KEY" not in core.log.text

    await asyncio.gather(look_around("root", {}), look_around("learner", SECURITY))


async def test_a_process_that_fails_ends_the_training_of_all(
    frameworks: Core, wait_until_empty: Callable[[], None]
) -> None:
    outcome = await frameworks.run(
        launcher="mpi",
        command="mpirun bash -c 'test $OMPI_COMM_WORLD_RANK = 0 && sleep 600; exit 7'",
        cpus="100m",
        memory="128Mi",
    )
    assert outcome["phase"] == "Failed"
    assert outcome["reason"] == "ExitCode"
    assert "learner 0 ended with exit code 7" in outcome["message"]
    await asyncio.to_thread(wait_until_empty)


async def test_an_image_without_ssh_is_said_to_be_one(core: Core) -> None:
    outcome = await core.run(launcher="mpi", command="true")
    assert outcome["phase"] == "Failed"
    assert "exit code 127: learner: the mpi launcher needs ssh and sshd" in outcome["message"]


@pytest.mark.usefixtures("frameworks_image")
def test_learners_of_the_examples_train_together_without_a_word_about_who_is_where(
    airflow: AirflowUnderTest, wait_until_empty: Callable[[], None]
) -> None:
    processes = {"train_torchrun": 4, "train_tensorflow": 2, "train_mpi": 4}
    dag_ids = [airflow.copy_dag_file(DAGS / f"{name}.py") for name in processes]
    for run in [airflow.trigger(dag_id) for dag_id in dag_ids]:
        run.wait_for("success")
        outcome = run.task("train").read_xcom()
        assert outcome["result"] == FOUND | {"processes": processes[run.dag_id]}
        assert [row["exit_code"] for row in outcome["learners"]] == [0, 0]
        log = "\n".join(run.task("train").read_log())
        assert_all_trained(log, processes=processes[run.dag_id])
    wait_until_empty()
