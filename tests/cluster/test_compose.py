"""The command lines of docker-compose.yml, run where no Docker is.

Those of the images themselves cannot be: Postgres, whose place SQLite takes here, k3s, and the copy
of the learners' image.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import yaml
from airflow.utils.net import get_hostname

from airflow_learner_provider.hooks import LearnerHook

if TYPE_CHECKING:
    import pytest

    from dev.airflow.access import Admin

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
LONG_RUNNING = ("api-server", "scheduler", "dag-processor", "triggerer")
START_SECONDS = 480


def read_script(service: str, changes: dict[str, str]) -> str:
    """Return a service's script for this machine; only root may give files away."""
    [script] = SERVICES[service]["command"]
    for before, after in {"$$": "$", **changes}.items():
        assert before in script
        script = script.replace(before, after)
    return f"chown() {{ :; }}\n{script}"


def find_free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def make_secrets(folder: Path) -> None:
    script = read_script("secrets", {"/secrets": str(folder)})
    for _ in range(2):  # what is there is kept
        subprocess.run(SERVICES["secrets"]["entrypoint"] + [script], check=True)


def build_environment(home: Path, secrets: Path, *, port: int, health_port: int) -> dict[str, str]:
    inside = {
        "/secrets": str(secrets),
        "http://api-server:8080": f"http://127.0.0.1:{port}",
    }
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")
    }
    for name, value in COMPOSE["x-airflow"]["environment"].items():
        for before, after in inside.items():
            value = value.replace(before, after)  # noqa: PLW2901
        environment[name] = value
    return environment | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(health_port),
        "AIRFLOW__TRIGGERER__TRIGGER_LOG_SERVER_PORT": str(find_free_port()),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(find_free_port()),
        "HOSTNAME": get_hostname(),
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
    }


@contextmanager
def run_service(service: str, environment: dict[str, str], home: Path) -> Iterator[Path]:
    """Run a service's command as the image's entrypoint does: by `airflow`."""
    output = home / f"{service}.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            ["airflow", *SERVICES[service]["command"].split()],
            env=environment,
            cwd=home,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield output
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_healthy(service: str, environment: dict[str, str], changes: dict[str, str]) -> bool:
    form, *command = SERVICES[service]["healthcheck"]["test"]
    command = [part.replace("$$", "$") for part in command]
    for before, after in changes.items():
        command = [part.replace(before, after) for part in command]
    command = ["/bin/sh", "-c", *command] if form == "CMD-SHELL" else command
    asked = subprocess.run(command, env=environment, capture_output=True, check=False)
    return asked.returncode == 0


def test_airflows_services_become_healthy_and_show_the_examples(tmp_path: Path) -> None:
    home, secrets = tmp_path / "home", tmp_path / "secrets"
    home.mkdir()
    secrets.mkdir()
    (home / "dags").symlink_to(ROOT / "dags")
    make_secrets(secrets)
    assert (secrets / "sql_alchemy_conn").read_text().startswith("postgresql+psycopg2://airflow:")
    (secrets / "sql_alchemy_conn").write_text(f"sqlite:///{home}/airflow.db?timeout=60")
    port, health_port = find_free_port(), find_free_port()
    environment = build_environment(home, secrets, port=port, health_port=health_port)
    migrate = ["airflow", *SERVICES["migrate"]["command"].split()]
    subprocess.run(migrate, env=environment, check=True, capture_output=True)

    with ExitStack() as stack:
        outputs = {
            name: stack.enter_context(run_service(name, environment, home)) for name in LONG_RUNNING
        }
        ports = {":8080/": f":{port}/", ":8974/": f":{health_port}/"}
        deadline = time.monotonic() + START_SECONDS
        for name in LONG_RUNNING:
            while not is_healthy(name, environment, ports):
                assert time.monotonic() < deadline, f"{name}:\n{outputs[name].read_text()[-4000:]}"
                time.sleep(1)
        password = json.loads((secrets / "passwords.json").read_text())["admin"]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            login = client.post("/auth/token", json={"username": "admin", "password": password})
            client.headers["Authorization"] = f"Bearer {login.json()['access_token']}"
            while client.get("/api/v2/dags/train_from_form").status_code != 200:
                assert time.monotonic() < deadline, outputs["dag-processor"].read_text()[-4000:]
                time.sleep(1)


def test_the_kubeconfig_that_is_made_has_the_rights_of_the_role(
    admin: Admin,
    namespace: str,
    kubeconfig: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = shutil.which("kubectl")
    if program is None:
        from dev.cluster.build import find_binary

        program = str(find_binary("kubectl"))
    rbac = tmp_path / "rbac.yaml"
    rbac.write_text(
        (ROOT / "deploy/rbac.yaml").read_text().replace("namespace: ml", f"namespace: {namespace}")
    )
    changes = {
        "https://k3s:6443": admin.client.configuration.host,
        "/kubeconfig/": f"{tmp_path}/",
        "/rbac.yaml": str(rbac),
        "namespace ml ": f"namespace {namespace} ",
        '"namespace": "ml"': f'"namespace": "{namespace}"',
    }
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "PATH": f"{Path(program).parent}:{os.environ['PATH']}",
    }
    entrypoint = SERVICES["kubeconfig"]["entrypoint"]
    script = read_script("kubeconfig", changes)
    subprocess.run([*entrypoint, script], env=environment, check=True, capture_output=True)

    connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": f"{tmp_path}/config"}}
    monkeypatch.setenv("AIRFLOW_CONN_TESTED", json.dumps(connection))
    fine, said = LearnerHook("tested").test_connection()
    assert fine, said
    assert said.endswith(f"trainings may be run in namespace {namespace}")
