"""No Docker engine runs where these tests do: they check what can be known from the file alone."""

import json
import os
import re
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from airflow.configuration import conf

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / COMPOSE["x-airflow"]["build"]["dockerfile"]).read_text()
BUILT = {name for name, service in SERVICES.items() if "build" in service}
ONE_SHOT = {name for name, service in SERVICES.items() if service["restart"] == "no"}

each_service = pytest.mark.parametrize("name", SERVICES)


def test_file_obeys_the_schema_of_compose() -> None:
    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(vendored.read_text()))


def test_every_part_is_there() -> None:
    airflow = {"api-server", "dag-processor", "migrate", "scheduler", "triggerer"}
    cluster = {"digits", "k3s", "kubeconfig"}
    assert SERVICES.keys() == airflow | cluster | {"postgres", "secrets"}
    assert {
        name for name in BUILT if SERVICES[name]["build"] == COMPOSE["x-airflow"]["build"]
    } == airflow


def test_airflow_is_the_locked_release() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    [locked] = re.findall(r"^apache-airflow==(\S+)", lock, re.MULTILINE)
    assert f"\nFROM apache/airflow:{locked}\n" in DOCKERFILE


@each_service
def test_service_tells_its_health_or_ends(name: str) -> None:
    assert ("healthcheck" in SERVICES[name]) is (name not in ONE_SHOT)


@each_service
def test_service_waits_for_others_to_be_healthy_or_to_have_ended(name: str) -> None:
    for other, need in SERVICES[name].get("depends_on", {}).items():
        ended = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
        assert need["condition"] == ended


@each_service
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:")


@each_service
def test_volumes_exist(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source, _, target = volume.partition(":")
        assert target.startswith("/")
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


@each_service
def test_image_is_of_a_fixed_release(name: str) -> None:
    assert name in BUILT or re.search(r":v?\d", SERVICES[name]["image"])


@each_service
def test_only_the_kubelet_is_privileged(name: str) -> None:
    assert SERVICES[name].get("privileged", False) is (name == "k3s")


@each_service
def test_secrets_come_from_files(name: str) -> None:
    for variable in SERVICES[name].get("environment", {}):
        if re.search("CONN$|KEY|PASSWORD|SECRET|TOKEN", variable):
            assert variable.endswith(("_CMD", "_FILE"))


def test_variables_have_a_default_or_are_required() -> None:
    variables = re.findall(r"(?<!\$)\$(?!\$)(\{[^}]*\})?", TEXT)
    assert variables
    assert all(re.fullmatch(r"\{\w+:[-?].+\}", variable) for variable in variables)


@pytest.mark.parametrize(
    "variable",
    [name for name in COMPOSE["x-airflow"]["environment"] if name.startswith("AIRFLOW__")],
)
def test_airflow_knows_the_setting(variable: str) -> None:
    section, option = variable.removeprefix("AIRFLOW__").lower().split("__")
    command = option.endswith("_cmd")
    option = option.removesuffix("_cmd")
    assert option in conf.configuration_description[section]["options"]
    assert ((section, option) in conf.sensitive_config_values) is command


def test_images_get_what_they_copy() -> None:
    digits = (ROOT / SERVICES["digits"]["build"]["dockerfile"]).read_text()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE + digits, re.MULTILINE)
    let_through = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    for copied in " ".join(copies).split():
        assert (ROOT / copied).exists()
        assert [
            path for path in let_through if os.path.commonpath([path, copied]) in {path, copied}
        ]


@pytest.mark.parametrize("name", [name for name in SERVICES if "entrypoint" in SERVICES[name]])
def test_script_is_shell(name: str) -> None:
    [script] = SERVICES[name]["command"]
    subprocess.run(["sh", "-n"], check=True, input=script.replace("$$", "$"), text=True)
