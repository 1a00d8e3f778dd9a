"""What a task would create, printed for kubectl."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG

from airflow_learner_provider.__main__ import main
from airflow_learner_provider.manifests import render_manifests
from airflow_learner_provider.operators import LearnerStatefulSetOperator

DAGS = Path(__file__).parents[2] / "dags"
DATE = datetime(2026, 1, 2, tzinfo=UTC)
DAG_FILE = """
    from airflow.sdk import DAG, Param, task
    from airflow_learner_provider.operators import LearnerStatefulSetOperator

    ours = {"learners": 2, "image": "digits:1", "command": "train"}
    with DAG("first", params={"epochs": Param(3, type="integer", maximum=10)}):
        before = LearnerStatefulSetOperator(task_id="before", **ours)
        LearnerStatefulSetOperator(
            task_id="train",
            learners=2,
            image="digits:1",
            command='''train --epochs {{ params.epochs }} --day {{ ds }}
              --from {{ ti.xcom_pull(task_ids='before')['result'].model }}''',
            name="digits",
            env={"BEFORE": before.output["name"]},
        )
        LearnerStatefulSetOperator.partial(task_id="each", image="digits:1").expand_kwargs(
            [{"learners": n, "command": f"train {n}"} for n in (1, 4)]
        )
        LearnerStatefulSetOperator(
            task_id="named_late",
            **ours,
            name="{{ ti.xcom_pull(task_ids='before', key='name') }}",
        )
        LearnerStatefulSetOperator(task_id="no_variable", **ours, env={"A": "{{ var.value.no }}"})
        LearnerStatefulSetOperator(task_id="no_image", learners=2, command="train")

        @task
        def publish(): ...

        publish()
    with DAG("second"):
        LearnerStatefulSetOperator(task_id="before", **ours)
"""


@pytest.fixture(scope="module")
def dag_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("dags") / "two.py"
    path.write_text(dedent(DAG_FILE))
    return str(path)


def render(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    assert main(["render", *arguments]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def read_env(stateful_set: Any) -> dict[str, str]:
    [learner] = [
        container
        for container in stateful_set["spec"]["template"]["spec"]["containers"]
        if container["name"] == "learner"
    ]
    return {entry["name"]: entry.get("value", "") for entry in learner["env"]}


def test_templates_are_rendered_as_far_as_it_is_known(
    dag_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service, stateful_set = render(
        capsys, dag_file, "train", "--conf", '{"epochs": 5}', "--logical-date", "2026-01-02"
    )
    assert (service["kind"], stateful_set["kind"]) == ("Service", "StatefulSet")
    assert stateful_set["metadata"]["name"] == "digits"
    assert stateful_set["spec"]["replicas"] == 2
    env = read_env(stateful_set)
    command = env["TRAINING_COMMAND"]
    assert command.startswith("train --epochs 5 --day 2026-01-02\n")
    assert command.endswith("--from {{ ti.xcom_pull(task_ids='before')['result'].model }}")
    assert env["BEFORE"] == "{{ ti.xcom_pull(task_ids='before', key='name') }}"


@pytest.mark.parametrize(("index", "learners"), [("0", 1), ("1", 4)])
def test_one_of_a_mapped_task_is_chosen_by_its_index(
    dag_file: str, capsys: pytest.CaptureFixture[str], index: str, learners: int
) -> None:
    _, stateful_set = render(capsys, dag_file, "each", "--map-index", index)
    assert stateful_set["spec"]["replicas"] == learners
    assert read_env(stateful_set)["TRAINING_COMMAND"] == f"train {learners}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ["tran"],
            "has no task 'tran'; tasks that run trainings: before, each, named_late, "
            "no_image, no_variable, train",
            id="no such task",
        ),
        pytest.param(["publish"], "task 'publish' is no LearnerStatefulSetOperator", id="not ours"),
        pytest.param(
            ["before"],
            "several DAGs have a task 'before'; choose by --dag: first, second",
            id="two",
        ),
        pytest.param(["before", "--dag", "third"], "has no DAG 'third'; it has", id="no such DAG"),
        pytest.param(
            ["train", "--conf", '{"epochs": 11}'], "--conf: Invalid input for param", id="conf"
        ),
        pytest.param(["no_image"], "no_image: give either image or framework", id="not a training"),
        pytest.param(
            ["named_late"],
            "(known only while a run goes on: {{ ti.xcom_pull(task_ids='before', key='name') }})",
            id="a value that is known too late",
        ),
        pytest.param(["no_variable"], "no_variable: a template cannot be rendered", id="variable"),
    ],
)
def test_error_says_what_is_wrong_and_what_there_is(
    dag_file: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["render", dag_file, *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err.splitlines()[-1]


def test_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", str(tmp_path / "no.py"), "train"]) == 1
    assert capsys.readouterr().err == f"{tmp_path}/no.py: there is no such file\n"
    (tmp_path / "bad.py").write_text("from airflow.sdk import DAG\nimport nothing_there\n")
    assert main(["render", str(tmp_path / "bad.py"), "train"]) == 1
    assert "No module named 'nothing_there'" in capsys.readouterr().err.splitlines()[-1]


def test_values_of_secrets_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    account = {"conn_type": "aws", "login": "the-key", "password": "the-secret"}
    registry = {"conn_type": "docker", "host": "registry.test", "password": "the-token"}
    cluster = {"conn_type": "kubernetes", "extra": {"namespace": "ml"}}
    monkeypatch.setenv("AIRFLOW_CONN_S3", json.dumps(account))
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", json.dumps(registry))
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(cluster))
    with DAG("digits", schedule=None):
        train = LearnerStatefulSetOperator(
            task_id="train",
            learners=2,
            image="digits:1",
            command="mpirun train",
            launcher="mpi",
            image_pull_conn_id="registry",
            training_data={"type": "s3_datastore", "bucket": "digits", "conn_id": "s3"},
        )
    text = render_manifests(train, logical_date=DATE)
    secrets = [m for m in yaml.safe_load_all(text) if m["kind"] == "Secret"]
    name = "digits-train-" + secrets[0]["metadata"]["name"].split("-")[2]
    assert [
        (s["metadata"]["name"], s["metadata"]["namespace"], s.get("data"), s.get("stringData"))
        for s in secrets
    ] == [
        (f"{name}-data", "ml", None, {"access-key": "left out", "secret-key": "left out"}),
        (f"{name}-pull", "ml", {".dockercfg": "e30="}, None),
        (f"{name}-ssh", "ml", None, dict.fromkeys(secrets[2]["stringData"], "left out")),
    ]
    assert "the-" not in text


def test_dry_run_prints_the_same_without_any_connection(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with DAG("digits", schedule=None):
        train = LearnerStatefulSetOperator(
            task_id="train", learners=2, image="digits:1", command="echo {{ ti.task_id }}"
        )
    train.dry_run()
    service, stateful_set = yaml.safe_load_all(capsys.readouterr().out)
    assert {m["metadata"]["namespace"] for m in (service, stateful_set)} == {"default"}
    assert read_env(stateful_set)["TRAINING_COMMAND"] == "echo train"
    assert train.command == "echo {{ ti.task_id }}"
