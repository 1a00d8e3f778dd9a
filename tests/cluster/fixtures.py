"""A real cluster and a real Airflow for the tests of two tiers; each test has its own namespace.

A plugin of pytest, which the tiers' conftest.py load: so they share one cluster and one Airflow.
The cluster is the one that KUBECONFIG names, else the local one, which is started and stays up.
Nothing here is skipped: without a cluster the tests fail, and say why.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import AppsV1Api, CoreV1Api

from dev.airflow.access import Admin, build_connection
from dev.airflow.rest import Json, Run
from dev.airflow.server import Airflow
from dev.airflow.settings import AirflowError
from dev.services import S3, serve_s3
from tests.cluster.core import Core, Gate

CONNECTION = "kubernetes_default"
OWNER_LABEL = "airflow-learner-tests"  # pid of the test run that made a namespace
# Who can log in, and Airflow's role for them; the password is the name. The last one may nothing.
USERS = {"admin": "admin", "user": "user", "viewer": "viewer", "nobody": ""}
EMPTY_SECONDS = 180


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what Airflow and the cluster know when a test fails, before everything is cleared."""
    report = yield
    if report.failed and call.when == "call":
        arguments: dict[str, Any] = getattr(item, "funcargs", {})
        if "namespace" in arguments:
            text = _describe_namespace(arguments["admin"], arguments["namespace"])
            report.sections.append(("namespace", text))
        if "airflow" in arguments:
            report.sections.append(("Airflow", arguments["airflow"].describe()))
    return report


@pytest.fixture(scope="session", autouse=True)
def end_in_order() -> None:
    """Undo what was made for the tests also when they are told to end, by SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """Of somebody who may do anything in the cluster."""
    if path := os.environ.get("KUBECONFIG"):
        return Path(path).resolve()
    started = subprocess.run(
        [sys.executable, "-m", "dev.cluster", "up", "--images", "digits"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(started.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def tiny_image() -> str:
    """An image with a shell and the usual commands."""
    return os.environ.get("LEARNER_TINY_IMAGE", "localhost/alp/tiny:1")


@pytest.fixture(scope="session")
def digits_image() -> str:
    """An image with Python, JAX, scikit-learn and the example training."""
    return os.environ.get("LEARNER_DIGITS_IMAGE", "localhost/alp/digits:1")


@pytest.fixture(scope="session")
def frameworks_image(kubeconfig: Path) -> str:  # of a cluster that is up
    """An image with PyTorch, TensorFlow, Open MPI and ssh, made now for the local cluster."""
    return os.environ.get("LEARNER_FRAMEWORKS_IMAGE") or _make_image("frameworks")


@pytest.fixture(scope="session")
def staging_image(kubeconfig: Path) -> str:  # of a cluster that is up
    """An image with rclone, made now for the local cluster."""
    return os.environ.get("LEARNER_STAGING_IMAGE") or _make_image("rclone")


def _make_image(name: str) -> str:
    made = subprocess.run(
        [sys.executable, "-m", "dev.cluster", "images", name],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return made.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="session")
def s3(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A real S3 server that pods of the local cluster reach."""
    with serve_s3(tmp_path_factory.mktemp("buckets")) as server:
        yield server


@pytest.fixture(scope="session")
def admin(kubeconfig: Path) -> Iterator[Admin]:
    """All rights in the cluster."""
    with closing(Admin(kubeconfig)) as admin:
        if "//127.0.0.1:" in admin.client.configuration.host:  # the pids are this machine's
            for name, pid in admin.list_namespaces(OWNER_LABEL).items():
                if not Path(f"/proc/{pid}").exists():
                    admin.delete_namespace(name)  # what is in it would be in these tests' way
        yield admin


@pytest.fixture(scope="session")
def core_api(admin: Admin) -> CoreV1Api:
    """The official client with all rights: pods, Services, Secrets, nodes ..."""
    return CoreV1Api(admin.client)


@pytest.fixture(scope="session")
def apps_api(admin: Admin) -> AppsV1Api:
    """The official client with all rights: StatefulSets."""
    return AppsV1Api(admin.client)


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path) -> Callable[..., str]:
    """Run kubectl with all rights and return what it prints."""
    program = shutil.which("kubectl")
    if program is None:
        from dev.cluster.build import find_binary

        program = str(find_binary("kubectl"))

    def run(*arguments: str, stdin: str | None = None) -> str:
        command = [program, "--kubeconfig", str(kubeconfig), *arguments]
        return subprocess.run(
            command, input=stdin, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    return run


@pytest.fixture
def namespace(admin: Admin) -> Iterator[str]:
    """A new namespace, with exactly the rights of `deploy/rbac.yaml` for Airflow."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    admin.prepare_namespace(name, labels={OWNER_LABEL: str(os.getpid())})
    yield name
    admin.delete_namespace(name)


@pytest.fixture
def role_kubeconfig(admin: Admin, namespace: str, tmp_path: Path) -> Path:
    """A kubeconfig with exactly the rights of `deploy/rbac.yaml` in the test's namespace."""
    path = tmp_path / "role-kubeconfig.json"
    path.write_text(json.dumps(admin.create_role_kubeconfig(namespace)))
    return path


@pytest.fixture
def core(namespace: str, role_kubeconfig: Path, tiny_image: str) -> Core:
    """Trainings without an Airflow around them."""
    return Core(namespace, role_kubeconfig, tiny_image)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """What learners wait at."""
    folder = tmp_path / "gate"
    folder.mkdir()
    return Gate(folder)


@pytest.fixture
def leftovers(admin: Admin) -> Callable[[str], list[str]]:
    """List the objects of every kind in a namespace that a training has left."""
    return admin.list_leftovers


@pytest.fixture
def wait_until_empty(admin: Admin, namespace: str) -> Callable[[], None]:
    """Wait until nothing of a training is left in the namespace: garbage is collected with time."""

    def wait() -> None:
        deadline = time.monotonic() + EMPTY_SECONDS
        while found := admin.list_leftovers(namespace):
            assert time.monotonic() < deadline, f"left in {namespace}: {', '.join(found)}"
            time.sleep(0.5)

    return wait


@pytest.fixture(scope="session")
def gauges() -> Iterator[socket.socket]:
    """Where Airflow sends the provider's metrics; each datagram is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gauges:
        gauges.bind(("127.0.0.1", 0))
        gauges.settimeout(10)
        yield gauges


@pytest.fixture(scope="session")
def running_airflow(
    tmp_path_factory: pytest.TempPathFactory, digits_image: str, gauges: socket.socket
) -> Iterator[Airflow]:
    """One Airflow for all tests."""
    environment = {
        "LEARNER_DIGITS_IMAGE": digits_image,
        "AIRFLOW__METRICS__STATSD_ON": "True",
        "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",  # tags stand in the name
        "AIRFLOW__METRICS__STATSD_PORT": str(gauges.getsockname()[1]),
        "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "learner_training",
    }
    home = tmp_path_factory.mktemp("airflow")
    with Airflow(home, environment=environment, users=USERS) as airflow:
        yield airflow


@dataclass
class AirflowUnderTest:
    """The running Airflow, and what one test makes in it.

    :param header: lines that stand before each DAG file.
    """

    server: Airflow
    header: str
    runs: list[Run]
    files: list[Path]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server, name)

    def dag_file(self, source: str) -> str:
        """Write a DAG file, wait until Airflow has read it, and return the DAG's id.

        The source finds DAG, task, LearnerStatefulSetOperator, LearnerDeleteOperator and
        LearnerStatefulSetSensor imported, and DAG_ID, NAMESPACE, TINY_IMAGE and DIGITS_IMAGE set.
        """
        dag_id = f"test_{uuid.uuid4().hex[:12]}"
        return self._add(dag_id, f"{self.header}DAG_ID = {dag_id!r}\n{textwrap.dedent(source)}")

    def copy_dag_file(self, path: Path) -> str:
        """Copy a DAG file whose DAG has its name, wait until Airflow has read it; return the id."""
        return self._add(path.stem, path.read_text())

    def _add(self, dag_id: str, text: str) -> str:
        path = self.server.dags / f"{dag_id}.py"
        written = time.time()
        part = path.with_suffix(".part")
        part.write_text(text)
        part.rename(path)  # never seen half written
        self.files.append(path)
        self.server.wait_for_dag(dag_id, since=written)
        return dag_id

    def trigger(self, dag_id: str, conf: Json | None = None) -> Run:
        """Start a run; it is ended with the test."""
        run = self.server.api.trigger(dag_id, conf)
        self.runs.append(run)
        return run

    def run(self, source: str, conf: Json | None = None) -> Run:
        """Write a DAG file and start a run of it."""
        return self.trigger(self.dag_file(source), conf)

    def describe(self) -> str:
        """Say how the test's runs are, with the logs of their tasks."""
        return "\n\n".join(run.describe() for run in self.runs)

    def clear(self) -> None:
        """End what still runs, so that the next test is alone."""
        for path in self.files:
            path.unlink(missing_ok=True)
        for run in self.runs:
            with suppress(AirflowError):  # the test has deleted it
                run.stop()


@pytest.fixture
def airflow(
    running_airflow: Airflow,
    admin: Admin,
    namespace: str,
    tiny_image: str,
    digits_image: str,
) -> Iterator[AirflowUnderTest]:
    """The running Airflow: its connection `kubernetes_default` has the Role's rights only."""
    running_airflow.mend()
    kubeconfig = admin.create_role_kubeconfig(namespace)
    running_airflow.api.set_connection(build_connection(CONNECTION, kubeconfig))
    header = textwrap.dedent(f"""\
        from airflow.sdk import DAG, task
        from airflow_learner_provider.operators import (
            LearnerDeleteOperator,
            LearnerStatefulSetOperator,
        )
        from airflow_learner_provider.sensors import LearnerStatefulSetSensor

        NAMESPACE = {namespace!r}
        TINY_IMAGE = {tiny_image!r}
        DIGITS_IMAGE = {digits_image!r}
        """)
    airflow = AirflowUnderTest(running_airflow, header, [], [])
    yield airflow
    airflow.clear()


def _describe_namespace(admin: Admin, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}"
    lines = [*admin.list_leftovers(namespace), "--- pods"]
    pods = admin.request("GET", f"{path}/pods")["items"]
    lines += [f"{pod['metadata']['name']} {json.dumps(pod['status'])}" for pod in pods]
    lines.append("--- events")
    for event in admin.request("GET", f"{path}/events")["items"]:
        involved = event["involvedObject"]
        lines.append(
            f"{involved['kind']}/{involved['name']} {event.get('reason')}: {event.get('message')}"
        )
    return "\n".join(lines)
