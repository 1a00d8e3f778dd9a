"""The shipped Role is enough, and every verb in it is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from airflow_learner_provider.cluster import follow
from airflow_learner_provider.exceptions import ApiError, LearnerError
from airflow_learner_provider.training.accounts import Account
from dev.airflow.access import RBAC, SERVICE_ACCOUNT, Admin
from tests.cluster.core import Core

RULES = next(
    manifest["rules"]
    for manifest in yaml.safe_load_all(RBAC.read_text())
    if manifest["kind"] == "Role"
)
LOGS = ("pods/log", "get")
VERBS = [
    (resource, verb) for rule in RULES for resource in rule["resources"] for verb in rule["verbs"]
]


def take_away(admin: Admin, namespace: str, resource: str, verb: str) -> None:
    """Leave Airflow's account in a namespace all rights but one."""
    rules = [
        {
            "apiGroups": rule["apiGroups"],
            "resources": [each],
            "verbs": [v for v in rule["verbs"] if (each, v) != (resource, verb)],
        }
        for rule in RULES
        for each in rule["resources"]
    ]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": SERVICE_ACCOUNT},
        "rules": [rule for rule in rules if rule["verbs"]],
    }
    admin.apply(role, namespace=namespace)


async def see_nothing(*_: Any) -> None:
    """Stand for an authorizer that does not list what it allows."""


@pytest.mark.parametrize(("resource", "verb"), [verb for verb in VERBS if verb != LOGS], ids=str)
async def test_a_missing_right_is_named_before_anything_is_made(
    core: Core,
    admin: Admin,
    leftovers: Callable[[str], list[str]],
    resource: str,
    verb: str,
) -> None:
    take_away(admin, core.namespace, resource, verb)
    core.accounts = {"registry": Account(host="registry.example.com", password="token")}
    with pytest.raises(ApiError) as error:
        # With a Secret and a ConfigMap of its own, which not every training has.
        await core.run(command="true", image_pull_conn_id="registry", files={"run.py": ""})
    assert f"cannot {verb} {resource} in namespace {core.namespace} " in str(error.value)
    assert "deploy/rbac.yaml" in str(error.value)
    assert leftovers(core.namespace) == []


async def test_without_the_right_to_logs_a_training_ends_as_well_and_says_so_once(
    core: Core, admin: Admin, wait_until_empty: Callable[[], None]
) -> None:
    take_away(admin, core.namespace, *LOGS)
    outcome = await core.run(command="echo unseen")
    assert outcome["phase"] == "Succeeded"
    said = [line for line in core.log.lines if "output is not shown" in line]
    assert len(said) == 1
    assert f"cannot get pods/log {core.namespace}/" in said[0]
    assert "unseen" not in core.log.text
    await asyncio.to_thread(wait_until_empty)


@pytest.mark.parametrize(
    ("resource", "verb", "words"),
    [
        pytest.param("statefulsets", "create", "cannot create statefulsets", id="create"),
        pytest.param("statefulsets", "patch", "cannot patch statefulsets", id="scale"),
        pytest.param("statefulsets", "list", "cannot list statefulsets", id="list"),
        pytest.param("pods", "watch", "cannot watch pods", id="watch"),
        pytest.param("services", "create", "cannot create services", id="owned"),
    ],
)
async def test_a_missing_right_that_could_not_be_checked_leaves_nothing_either(
    *,
    core: Core,
    admin: Admin,
    wait_until_empty: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    resource: str,
    verb: str,
    words: str,
) -> None:
    monkeypatch.setattr(follow, "check_rights", see_nothing)
    take_away(admin, core.namespace, resource, verb)
    with pytest.raises(LearnerError) as error:
        await core.run(command="sleep 60")
    assert f"{words} {core.namespace}/" in str(error.value)
    await asyncio.to_thread(wait_until_empty)


async def test_what_cannot_be_deleted_any_more_is_named(
    core: Core, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "check_rights", see_nothing)
    take_away(admin, core.namespace, "statefulsets", "delete")
    outcome = await core.run(command="true", name="stays")
    assert outcome["phase"] == "Succeeded"
    said = f"StatefulSet {core.namespace}/stays may be left behind: cannot delete statefulsets"
    assert f"{said} {core.namespace}/stays: 403" in core.log.text
