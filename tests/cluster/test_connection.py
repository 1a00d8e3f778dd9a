"""A connection is tested by Airflow, and by the hook, which knows the rights that are needed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_learner_provider import hooks
from airflow_learner_provider.hooks import LearnerHook
from dev.airflow.access import Admin, build_connection
from tests.cluster.fixtures import AirflowUnderTest

if TYPE_CHECKING:
    import pytest


def ask(monkeypatch: pytest.MonkeyPatch, kubeconfig: Any, **extra: Any) -> tuple[bool, str]:
    extra["kube_config"] = json.dumps(kubeconfig)
    connection = {"conn_type": "kubernetes", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TESTED", json.dumps(connection))
    return LearnerHook("tested").test_connection()


def with_token(kubeconfig: Any, token: str) -> Any:
    changed = copy.deepcopy(kubeconfig)
    changed["users"][0]["user"] = {"token": token}
    return changed


def test_the_hook_says_whether_trainings_may_be_run(
    namespace: str, role_kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = json.loads(role_kubeconfig.read_text())
    host = kubeconfig["clusters"][0]["cluster"]["server"]
    assert ask(monkeypatch, kubeconfig, namespace=namespace) == (
        True,
        f"{host}: trainings may be run in namespace {namespace}",
    )
    fine, said = ask(monkeypatch, kubeconfig, namespace="default")
    assert (fine, said.startswith("cannot list statefulsets default/*: 403 ")) == (False, True), (
        said
    )
    fine, said = ask(monkeypatch, with_token(kubeconfig, "nobody's"), namespace=namespace)
    assert (fine, "401" in said) == (False, True), said
    monkeypatch.setattr(hooks, "_TEST_SECONDS", 1)
    kubeconfig["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    assert ask(monkeypatch, kubeconfig, namespace=namespace) == (
        False,
        "no answer from https://127.0.0.1:1 within 1 s",
    )


def test_airflow_tests_a_connection(
    airflow: AirflowUnderTest, admin: Admin, namespace: str
) -> None:
    kubeconfig = admin.create_role_kubeconfig(namespace)

    def test(kubeconfig: Any) -> Any:
        connection = build_connection("tested", kubeconfig)
        return airflow.api.request("POST", "/connections/test", json=connection)

    answer = test(kubeconfig)
    assert answer["status"], answer
    assert "Connection successful" in answer["message"]
    answer = test(with_token(kubeconfig, "nobody's"))
    assert not answer["status"]
    assert "Unauthorized" in answer["message"]
