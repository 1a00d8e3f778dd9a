"""Faults that neighbouring tools have had, where no cluster is needed; docs/known-faults.md."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk import DAG, BaseHook
from airflow.serialization.serialized_objects import DagSerialization
from kubernetes.client import V1Container, V1EnvVar, V1PodSpec

from airflow_learner_provider.cluster import follow
from airflow_learner_provider.cluster.api import Api
from airflow_learner_provider.cluster.client import create_or_adopt, release
from airflow_learner_provider.cluster.credentials import ClusterSettings
from airflow_learner_provider.exceptions import (
    ApiError,
    InvalidSpecError,
    LearnerError,
    TrainingFailedError,
)
from airflow_learner_provider.operators import LearnerStatefulSetOperator
from airflow_learner_provider.sensors import LearnerStatefulSetSensor
from airflow_learner_provider.training.accounts import Account
from airflow_learner_provider.training.naming import Owner
from airflow_learner_provider.training.objects import TrainingObjects, build_objects
from airflow_learner_provider.training.request import TrainingRequest
from airflow_learner_provider.training.spec import parse_training_spec
from airflow_learner_provider.triggers import LearnerTrigger

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "known-faults.md"
OWNER = Owner("dag", "train", "run", -1, 1, "try-1", durable=False)
SPEC: dict[str, Any] = {"learners": 2, "image": "busybox", "command": "true"}


def build(**spec: Any) -> TrainingObjects:
    return build_objects(
        parse_training_spec(SPEC | spec), OWNER, namespace="ml", version="1", native=False
    )


def test_every_fault_has_a_test() -> None:
    defined = {
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    rows = re.findall(r"^\| \[([\w.-]+/[\w.-]+#\d+)\].*\|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert len({report for report, _ in rows}) == 30
    for report, tests in rows:
        named = set(re.findall(r"`(tests/[^`]+)`", tests))
        assert named, f"no test is named for {report}"
        assert named <= defined, f"{report}: there is no {named - defined}"


class OneApi:
    """An API server with objects in a dictionary, which refuses one kind."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.objects: dict[tuple[str, str], Any] = {}

    async def create(self, manifest: Any) -> Any:
        if manifest["kind"] == self.refused:
            raise ApiError("refused", status=422, reason="Invalid")
        stored = json.loads(json.dumps(manifest))
        stored["metadata"] |= {"uid": manifest["kind"], "resourceVersion": "1"}
        self.objects[manifest["kind"], manifest["metadata"]["name"]] = stored
        return stored

    async def read(self, kind: str, _: str, name: str) -> Any:
        return self.objects.get((kind, name))

    async def patch(self, *_: Any) -> Any:
        if self.refused == "scale":
            raise ApiError("refused", status=403, reason="Forbidden")
        raise AssertionError

    async def delete(self, kind: str, _: str, name: str, __: Any) -> bool:
        # As the garbage collector does: what the object owns goes with it.
        uid = self.objects.pop((kind, name))["metadata"]["uid"]
        for key, found in list(self.objects.items()):
            if any(owner["uid"] == uid for owner in found["metadata"].get("ownerReferences", ())):
                del self.objects[key]
        return True


@pytest.mark.parametrize("refused", ["StatefulSet", "Service", "Secret", "scale"])
async def test_whatever_step_of_the_creation_fails_nothing_is_left(refused: str) -> None:
    objects = build_objects(
        parse_training_spec(SPEC | {"image_pull_conn_id": "registry"}),
        OWNER,
        namespace="ml",
        version="1",
        native=False,
        accounts={"registry": Account(host="registry.example.com", password="token")},
    )
    assert [each["kind"] for each in objects.owned] == ["Service", "Secret"]
    api: Any = OneApi(refused)
    with pytest.raises(ApiError, match="refused"):
        await create_or_adopt(api, objects, OWNER)
    await release(api, "ml", objects.name, OWNER)
    assert api.objects == {}


@pytest.mark.parametrize(
    "event",
    [
        None,
        {},
        {"status": "success"},
        {"outcome": {}},
        {"outcome": {"name": "digits", "phase": None}},
        {"outcome": {"name": "digits", "phase": "Completed"}},
        {"outcome": {"name": "digits", "phase": "Running"}},
    ],
)
@pytest.mark.parametrize("face", ["operator", "sensor"])
def test_an_event_that_is_not_understood_is_a_failure(face: str, event: Any) -> None:
    task: Any = (
        LearnerStatefulSetOperator(task_id="train", **SPEC)
        if face == "operator"
        else LearnerStatefulSetSensor(task_id="wait", name="digits", target="completed")
    )
    with pytest.raises(LearnerError):
        task.execute_complete({"ti": Mock()}, event)


def test_the_verdict_travels_in_the_event() -> None:
    """Nothing is read on resume, so nothing can be missing."""
    operator = LearnerStatefulSetOperator(
        task_id="train", kubernetes_conn_id="no_such_connection", **SPEC
    )
    succeeded: Any = {"name": "digits", "phase": "Succeeded"}
    assert operator.execute_complete({"ti": Mock()}, {"outcome": succeeded}) == succeeded
    failed = {"name": "digits", "phase": "Failed", "reason": "OOMKilled", "message": "memory"}
    with pytest.raises(TrainingFailedError, match="memory"):
        operator.execute_complete({"ti": Mock()}, {"outcome": failed})


async def test_a_trigger_reads_its_connection_without_blocking_and_asks_the_cluster_named_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the synchronous way was taken in the event loop")

    seen: list[ClusterSettings] = []

    async def stop(self: Any, **_: Any) -> None:
        seen.append(self._settings)
        raise LearnerError("far enough")

    extra = json.dumps({"kube_config_path": "/explicit/config", "cluster_context": "gpu"})
    monkeypatch.setenv("AIRFLOW_CONN_GPUS", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    monkeypatch.setenv("KUBECONFIG", "/default/config")
    monkeypatch.setattr(BaseHook, "get_connection", refuse)
    monkeypatch.setattr(Api, "credentials", stop)
    trigger = LearnerTrigger(
        TrainingRequest(parse_training_spec(SPEC), OWNER, None, "1").to_json(), "gpus"
    )
    events = [event.payload async for event in trigger.run()]
    assert events == [{"error": "LearnerError", "message": "far enough"}]
    assert seen == [ClusterSettings(kube_config_path="/explicit/config", context="gpu")]


async def test_a_trigger_is_whole_after_its_serialized_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It holds nothing that a second triggerer would not have; only on_kill deletes."""
    request = TrainingRequest(
        parse_training_spec(SPEC | {"max_restarts": 2, "env": {"LR": 0.1}}), OWNER, 1e9, "1"
    )
    trigger = LearnerTrigger(request.to_json(), "gpus")
    path, arguments = trigger.serialize()
    assert path == "airflow_learner_provider.triggers.LearnerTrigger"
    again = LearnerTrigger(**json.loads(json.dumps(arguments)))
    assert TrainingRequest.from_json(again.training) == request
    deleted: list[str] = []
    monkeypatch.setattr(follow, "release", lambda *_: deleted.append("follow"))
    await again.cleanup()
    assert deleted == []


TEMPLATES: dict[str, Any] = {
    "learners": "{{ params.n }}",
    "command": "train --day {{ ds }}",
    "image": "registry/train:{{ params.tag }}",
    "memory": "{{ params.memory }}",
    "namespace": "{{ params.namespace }}",
    "labels": {"day": "{{ ds }}"},
    "results": {
        "type": "mount_volume",
        "claim": "{{ params.claim }}",
        "mount_path": "/results",
    },
    "env": {"DAY": "{{ ds }}", "LR": "{{ params.lr }}"},
    "pod_template": {"spec": {"containers": [{"name": "log", "image": "log:{{ params.tag }}"}]}},
    "ready_timeout": "{{ params.seconds }}",
}
VALUES = {
    "n": 3,
    "tag": "1.5",
    "memory": "2Gi",
    "namespace": "ml",
    "claim": "digits",
    "lr": 0.1,
    "seconds": 90,
}


def read_spec(operator: LearnerStatefulSetOperator) -> Any:
    ti = Mock(dag_id="dag", task_id="train", run_id="run", map_index=0, try_number=1, id="try-1")
    context: Any = {"ti": ti, "ds": "2026-01-01", "params": VALUES}
    operator.render_template_fields(context)
    return operator.build_request(context).spec


@pytest.mark.parametrize("form", ["plain", "models", "mapped"])
def test_templates_are_rendered_wherever_they_stand(form: str) -> None:
    fields: dict[str, Any] = dict(TEMPLATES)
    if form == "mapped":
        mapped = LearnerStatefulSetOperator.partial(task_id="train", **fields).expand(
            cpus=["{{ params.n }}"]
        )
        operator: Any = LearnerStatefulSetOperator(
            task_id="train", **mapped.partial_kwargs, cpus="{{ params.n }}"
        )
    else:
        operator = LearnerStatefulSetOperator(task_id="train", **fields)
    spec = read_spec(operator)
    assert spec.learners == 3
    assert spec.ready_timeout == 90
    built = build_objects(spec, OWNER, namespace="ml", version="1", native=False)
    text = json.dumps([built.stateful_set, *built.owned])
    assert "{{" not in text
    for value in ("registry/train:1.5", "log:1.5", "2026-01-01", '"digits"'):
        assert value in text


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"image": "None"}, "image"),
        ({"env": {"LR": "None"}}, "env.LR"),
        ({"command": ["train", "None"], "holder_image": "busybox"}, "command.1"),
        ({"learners": "None"}, "learners"),
    ],
)
def test_a_template_that_found_no_value_is_told(spec: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidSpecError, match=rf"^{place}: is the text None; a template"):
        parse_training_spec(SPEC | spec)


@pytest.mark.parametrize(
    ("env", "texts"),
    [
        ({"EPOCHS": 3, "LR": 1e-4}, {"EPOCHS": "3", "LR": "0.0001"}),
        ({"DEBUG": True, "QUIET": False}, {"DEBUG": "true", "QUIET": "false"}),
        # Escaped, so that the learner sees what was written.
        ({"LATER": "$(EPOCHS)"}, {"LATER": "$$(EPOCHS)"}),
    ],
)
def test_values_of_variables_become_texts_in_one_way(
    env: dict[str, Any], texts: dict[str, str]
) -> None:
    pod = build(env=env).stateful_set["spec"]["template"]["spec"]
    variables = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert variables.items() >= texts.items()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"env": {"X": None}}, "env.X: "),
        ({"env": {"X": {"a": 1}}}, "env.X: "),
        ({"memory": "4GiB"}, "memory: should be a Kubernetes quantity"),
        ({"gpus": 0.5}, "gpus: "),
    ],
)
def test_values_that_the_api_refuses_are_refused_by_name(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        parse_training_spec(SPEC | spec)


def test_what_queues_and_gang_schedulers_read_reaches_the_pods_unchanged() -> None:
    objects = build(
        labels={"kueue.x-k8s.io/queue-name": "gpus"},
        pod_template={
            "metadata": {"annotations": {"scheduling.k8s.io/group-name": "digits"}},
            "spec": {
                "schedulerName": "volcano",
                "priorityClassName": "high",
                "schedulingGates": [{"name": "example.com/queue"}],
            },
        },
    )
    pod = objects.stateful_set["spec"]["template"]
    for metadata in (objects.stateful_set["metadata"], pod["metadata"]):
        assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "digits"
    wanted = {"schedulerName": "volcano", "priorityClassName": "high"}
    assert pod["spec"].items() >= wanted.items()
    assert pod["spec"]["schedulingGates"] == [{"name": "example.com/queue"}]


def test_a_dag_with_kubernetes_models_serializes_to_one_text() -> None:
    def serialize() -> str:
        container = V1Container(name="log", image="log", env=[V1EnvVar(name="A", value="1")])
        with DAG("d", schedule=None) as dag:
            LearnerStatefulSetOperator(
                task_id="train",
                learners=2,
                image="busybox",
                command="true",
                pod_template={"spec": V1PodSpec(containers=[container])},
            )
            LearnerStatefulSetSensor(task_id="wait", name="digits")
        return json.dumps(DagSerialization.to_dict(dag))

    text = serialize()
    assert serialize() == text
    assert " at 0x" not in text
