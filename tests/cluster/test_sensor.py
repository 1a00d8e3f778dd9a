"""The sensor in a running Airflow: one outcome, whichever way it waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider.cluster.connection import connect
from airflow_learner_provider.cluster.credentials import ClusterSettings
from airflow_learner_provider.cluster.wait import look_at_training
from airflow_learner_provider.exceptions import LearnerError
from tests.cluster.core import Core

MODES: dict[str, dict[str, Any]] = {
    "poke": {"mode": "poke"},
    "reschedule": {"mode": "reschedule"},
    "deferrable": {"deferrable": True},
}
# What is waited for, and in which state the task ends, with a part of its log.
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "somebodys": ({"name": "somebodys"}, "success", ""),
    "absent": ({"name": "absent", "timeout": 4}, "failed", "AirflowSensorTimeout"),
    "skipped": ({"name": "absent", "timeout": 4, "soft_fail": True}, "skipped", ""),
    "refused": (
        {"name": "any", "namespace": "kube-system", "soft_fail": True},
        "failed",
        'in the namespace "kube-system"',  # which request is refused first is the mode's own
    ),
    "broken": (
        {"name": "broken", "target": "completed", "soft_fail": True},
        "failed",
        "learner 0 ended with exit code 5 [ExitCode]",
    ),
}


async def test_the_outcome_is_the_same_in_every_mode(
    airflow: Any, core: Core, kubectl: Callable[..., str]
) -> None:
    kubectl("create", "-f", "-", stdin=json.dumps(core.build_somebodys()))
    await core.run(name="broken", command="exit 5", learners=1, wait_until="created")
    tasks = {
        f"{case}_{mode}": {"namespace": core.namespace, "poke_interval": 2} | arguments | how
        for case, (arguments, _, _) in CASES.items()
        for mode, how in MODES.items()
    }
    run = airflow.run(f"""
with DAG(DAG_ID, schedule=None):
    for task_id, arguments in {tasks!r}.items():
        LearnerStatefulSetSensor(task_id=task_id, **arguments)
""")
    await asyncio.to_thread(run.wait_for, "failed")
    states = {task_id: run.task(task_id).read_state() for task_id in tasks}
    assert states == {f"{case}_{mode}": CASES[case][1] for case in CASES for mode in MODES}
    for case, (_, _, words) in CASES.items():
        for mode in MODES:
            assert words in "\n".join(run.task(f"{case}_{mode}").read_log())
    outcomes = [run.task(f"somebodys_{mode}").read_xcom() for mode in MODES]
    assert [outcome["phase"] for outcome in outcomes] == ["Running"] * len(MODES)


async def test_a_namespace_that_does_not_exist_is_not_waited_for(kubeconfig: Path) -> None:
    async with connect(ClusterSettings(kube_config_path=str(kubeconfig))) as connection:
        with pytest.raises(LearnerError, match="there is no namespace no-such-namespace"):
            await look_at_training(connection, "any", "no-such-namespace", target="ready")
