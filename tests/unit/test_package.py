import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import airflow
import jsonschema
import pytest
from airflow.providers_manager import ProvidersManager
from packaging.requirements import Requirement

import airflow_learner_provider
from airflow_learner_provider.get_provider_info import get_provider_info

ROOT = Path(__file__).parents[2]
DISTRIBUTION = "airflow-learner-provider"


def test_description_obeys_the_schema_of_airflow() -> None:
    schema = Path(airflow.__file__).with_name("provider_info.schema.json")
    jsonschema.validate(get_provider_info(), json.loads(schema.read_text()))


def test_airflow_finds_the_provider_by_its_entry_point() -> None:
    provider = ProvidersManager().providers[DISTRIBUTION]
    assert provider.version == airflow_learner_provider.__version__
    assert provider.data.items() >= get_provider_info().items()


SET = {
    "staging_image": "registry.example.com/staging",
    "holder_image": "registry.example.com/holder",
    "kubernetes_conn_id": "kubernetes_ml",
    "namespaces": "ml,research",
}
DEFAULTS = """
from airflow_learner_provider.operators import LearnerStatefulSetOperator
from airflow_learner_provider.ui.reader import Reader
train = LearnerStatefulSetOperator(task_id="train", learners=1, image="i", command="true")
reader = Reader()
print(train.staging_image, train.holder_image, reader.conn_id, ",".join(reader.namespaces))
"""


def test_the_settings_that_are_described_are_those_that_are_read() -> None:
    described = get_provider_info()["config"]["learner"]["options"]
    assert described.keys() == SET.keys()
    settings = {f"AIRFLOW__LEARNER__{option.upper()}": value for option, value in SET.items()}
    ran = subprocess.run(
        [sys.executable, "-c", DEFAULTS],
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert ran.stdout.split()[-4:] == list(SET.values())


def test_version_is_that_of_the_distribution() -> None:
    assert airflow_learner_provider.__all__ == ["__version__"]
    assert airflow_learner_provider.__version__ == importlib.metadata.version(DISTRIBUTION)
    assert get_provider_info()["versions"][0] == airflow_learner_provider.__version__


def requirements() -> list[Requirement]:
    """List what pyproject.toml asks for: to build, to run, to develop."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = [*pyproject["build-system"]["requires"], *pyproject["project"]["dependencies"]]
    for group in pyproject["dependency-groups"].values():
        listed += [entry for entry in group if isinstance(entry, str)]
    return [Requirement(entry) for entry in sorted(set(listed))]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_lock_answers_each_requirement(requirement: Requirement) -> None:
    lock = (ROOT / "requirements.lock").read_text()
    [version] = [
        line.removeprefix(f"{requirement.name}==").split()[0]
        for line in lock.splitlines()
        if line.startswith(f"{requirement.name}==")
    ]
    assert version in requirement.specifier
    assert importlib.metadata.version(requirement.name) == version, "run `make venv`"


def test_lock_names_no_place() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert " @ " not in lock
    assert "--find-links" not in lock
