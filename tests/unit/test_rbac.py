"""The shipped Role allows what is checked before a training is made, and reading logs."""

from __future__ import annotations

from pathlib import Path

import yaml

from airflow_learner_provider.cluster.rights import find_missing

RBAC = Path(__file__).parents[2] / "deploy" / "rbac.yaml"
RULES = next(
    manifest["rules"]
    for manifest in yaml.safe_load_all(RBAC.read_text())
    if manifest["kind"] == "Role"
)
OWNED = ["ConfigMap", "Secret", "Service"]
LOGS = "get pods/log"


def test_the_shipped_role_is_what_is_checked_and_the_logs() -> None:
    shipped = [f"{v} {r}" for rule in RULES for r in rule["resources"] for v in rule["verbs"]]
    assert sorted(shipped) == sorted([*find_missing([], OWNED), LOGS])
    assert find_missing(RULES, OWNED) == []


def test_all_rights_are_enough() -> None:
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    assert find_missing(everything, OWNED) == []


def test_rights_to_single_objects_are_not_enough() -> None:
    single = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["digits"]}]
    assert find_missing(single, OWNED) == find_missing([], OWNED)
