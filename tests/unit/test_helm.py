"""The values for Airflow's chart agree with what they are used with."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from airflow_learner_provider.hooks import parse_extra

DEPLOY = Path(__file__).parents[2] / "deploy"
VALUES: dict[str, Any] = yaml.safe_load((DEPLOY / "helm-values.yaml").read_text())
BINDING: dict[str, Any] = yaml.safe_load((DEPLOY / "helm-rbac.yaml").read_text())


def test_the_role_is_given_to_the_accounts_of_the_chart() -> None:
    accounts = {VALUES[part]["serviceAccount"]["name"] for part in ("scheduler", "triggerer")}
    accounts.add(VALUES["workers"]["serviceAccount"]["name"])
    assert {subject["name"] for subject in BINDING["subjects"]} == accounts
    role = next(
        manifest
        for manifest in yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text())
        if manifest["kind"] == "Role"
    )
    assert BINDING["roleRef"]["name"] == role["metadata"]["name"]


def test_airflow_is_that_of_the_image() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    version = VALUES["airflowVersion"]
    assert f"FROM apache/airflow:{version}\n" in dockerfile
    assert VALUES["images"]["airflow"]["tag"].startswith(version)


def test_the_connection_is_the_pods_own_account() -> None:
    [variable] = VALUES["env"]
    assert variable["name"] == "AIRFLOW_CONN_KUBERNETES_DEFAULT"
    settings = parse_extra(json.loads(variable["value"])["extra"])
    assert (settings.in_cluster, settings.namespace) == (True, "ml")


def test_the_commands_name_files_that_are_there() -> None:
    text = (DEPLOY / "helm-values.yaml").read_text()
    for path in re.findall(r"deploy/[\w.-]+", text):
        assert (DEPLOY.parent / path).is_file()
