"""What users write, and how they are told what is wrong with it."""

from typing import Any

import pytest

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.diagnosis import Reason
from airflow_learner_provider.training.spec import TrainingSpec, parse_training_spec

VALID = {"learners": 2, "command": "python train.py", "image": "registry.example.com/ml/digits:1"}
HOST = {"type": "host_mount", "host_path": "/srv/data"}
# In a value that is refused: it may be a password, so no error tells it.
PLANTED = "planted-9431"


def parse(**values: Any) -> TrainingSpec:
    return parse_training_spec({**VALID, **values})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no learners": ({"learners": 0}, "learners: should be greater than or equal to 1"),
    "fewer than none": ({"learners": -1}, "learners: should be greater than or equal to 1"),
    "too many learners": ({"learners": 2**31}, "learners: should be less than or equal to"),
    "learners in words": ({"learners": f"three {PLANTED}"}, "learners: should be a valid integer"),
    "half a learner": ({"learners": 2.5}, "learners: should be a valid integer"),
    "learners true": ({"learners": True}, "learners: should be a whole number, not a boolean"),
    "learners missing": ({"learners": None}, "learners: Field required"),
    "command missing": ({"command": None}, "command: Field required"),
    "empty command": ({"command": ""}, "command: should have at least 1"),
    "empty command list": ({"command": []}, "command: should have at least 1"),
    "a list without a holder": ({"command": ["train"]}, "holder_image: a command that is a list"),
    "a list and the wrapper": (
        {"command": ["train"], "completion": "wrapper", "holder_image": "busybox"},
        "completion: the wrapper needs a shell",
    ),
    "memory of no unit": ({"memory": "4GiB"}, "memory: should be a Kubernetes quantity such as"),
    "memory in words": ({"memory": PLANTED}, "memory: should be a Kubernetes quantity"),
    "no memory": ({"memory": "0"}, "memory: should be more than 0"),
    "no memory in thousands": ({"memory": "0e3"}, "memory: should be more than 0"),
    "fewer CPUs than none": ({"cpus": -1}, "cpus: should be a Kubernetes quantity"),
    "CPUs true": ({"cpus": True}, "cpus: should be a Kubernetes quantity"),
    "half a GPU": ({"gpus": 0.5}, "gpus: should be a valid integer"),
    "GPUs true": ({"gpus": True}, "gpus: should be a whole number, not a boolean"),
    "fewer GPUs than none": ({"gpus": -1}, "gpus: should be greater than or equal to 0"),
    "no image": ({"image": None}, "give either image or framework"),
    "two images": (
        {"framework": "tensorflow", "framework_version": "1.5"},
        "give either image or framework",
    ),
    "framework without version": (
        {"image": None, "framework": "tensorflow"},
        "framework and framework_version go together",
    ),
    "version without framework": (
        {"framework_version": "1.5"},
        "framework and framework_version go together",
    ),
    "an image with a space": ({"image": f"digits {PLANTED}"}, "image: should be the name of an im"),
    "an empty image": ({"image": ""}, "image: should be the name of an image"),
    "an unknown pull policy": (
        {"image_pull_policy": PLANTED},
        "image_pull_policy: should be 'Always', 'IfNotPresent' or 'Never'",
    ),
    "two pull secrets": (
        {"image_pull_secret": "pull", "image_pull_conn_id": "registry"},
        "give either image_pull_secret or image_pull_conn_id",
    ),
    "an unknown key": ({"learnres": PLANTED}, "learnres: is not a known key"),
    "an unknown launcher": ({"launcher": PLANTED}, "launcher: should be 'none', 'torchrun'"),
    "a name too long": ({"name": "d" * 53}, "name: should have at most 52 characters"),
    "a name with a digit first": ({"name": "1-digits"}, "name: should be a DNS label"),
    "a name in capitals": ({"name": "Digits"}, "name: should be a DNS label"),
    "a name with a hyphen last": ({"name": "digits-"}, "name: should be a DNS label"),
    "a namespace in capitals": ({"namespace": "ML"}, "namespace: should be a DNS label"),
    "a namespace too long": ({"namespace": "m" * 64}, "namespace: should be a DNS label"),
    "a variable without a value": ({"env": {"LR": None}}, "env.LR: should be a valid string"),
    "a variable of many values": ({"env": {"LR": {"a": PLANTED}}}, "env.LR: should be a valid st"),
    "a variable that begins with a digit": (
        {"env": {"1LR": PLANTED}},
        "env: '1LR' is not a valid name of an environment variable",
    ),
    "a variable of ours": (
        {"env": {"TRAINING_ID": PLANTED}},
        "env: TRAINING_ID is set by the provider",
    ),
    "a label with a space": ({"labels": {"team": f"a {PLANTED}"}}, "labels: team: should have at"),
    "a label too long": ({"labels": {"team": "a" * 64}}, "labels: team: should have at most 63"),
    "a label's key with a space": ({"labels": {"a b": "c"}}, "labels: 'a b' is not a valid key"),
    "a label without a value": ({"labels": {"team": None}}, "labels.team: should be a valid str"),
    "a node selector with a space": (
        {"node_selector": {"zone": "a b"}},
        "node_selector: zone: should have at most 63",
    ),
    "an unknown store": (
        {"training_data": {"type": PLANTED}},
        "training_data.type: should be 'host_mount', 'mount_volume', 'mount_cos'",
    ),
    "a store without its path": (
        {"results": {"type": "host_mount"}},
        "results: host_path is needed by a store of type host_mount",
    ),
    "a store with another one's claim": (
        {"results": {**HOST, "claim": "data"}},
        "results: claim has no meaning for a store of type host_mount",
    ),
    "a store with an unknown key": (
        {"results": {**HOST, "hostpath": PLANTED}},
        "results.hostpath: is not a known key",
    ),
    "a relative path": (
        {"results": {"type": "host_mount", "host_path": PLANTED}},
        "results.host_path: should be an absolute path",
    ),
    "a path that leads out": (
        {"results": {**HOST, "sub_path": f"../{PLANTED}"}},
        "results.sub_path: should be a relative path without '..'",
    ),
    "two stores in one place": (
        {"training_data": HOST | {"mount_path": "/d"}, "results": HOST | {"mount_path": "/d/"}},
        "training_data and results should each have a mount_path of their own",
    ),
    "a store over the exit record": (
        {"results": HOST | {"mount_path": "/job"}},
        "training_data and results should each have a mount_path of their own",
    ),
    "a pod template that is text": ({"pod_template": PLANTED}, "pod_template: should be a valid"),
    "no time to start": ({"ready_timeout": 0}, "ready_timeout: should be greater than 0"),
    "time in words": ({"ready_timeout": PLANTED}, "ready_timeout: should be a valid number"),
    "an unknown stage": ({"wait_until": PLANTED}, "wait_until: should be 'created', 'ready' or"),
    "an unknown end": ({"on_finish_action": PLANTED}, "on_finish_action: should be 'delete', 'ke"),
    "restarts true": ({"max_restarts": True}, "max_restarts: should be a whole number"),
    "a restart after a scaling": ({"restart_on": ["Scaled"]}, "restart_on: Scaled cannot be mend"),
    "a restart for no reason": ({"restart_on": [PLANTED]}, "restart_on.0: should be 'ExitCode',"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistake_is_told_by_its_field_and_never_by_its_value(mistake: str) -> None:
    values, message = WRONG[mistake]
    with pytest.raises(InvalidSpecError) as raised:
        parse(**values)
    assert str(raised.value).startswith(message)
    assert PLANTED not in str(raised.value)
    # Nor does the error carry pydantic's own, which holds the input.
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(InvalidSpecError) as raised:
        parse(learners=0, gpus=0.5, colour="blue")
    told = [part.split(":")[0] for part in str(raised.value).split("; ")]
    assert told == ["learners", "gpus", "colour"]


RIGHT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text from a form": ({"learners": "3", "gpus": "1"}, {"learners": 3, "gpus": 1}),
    "whole numbers with a point": ({"learners": 2.0, "gpus": 1.0}, {"learners": 2, "gpus": 1}),
    "numbers as quantities": ({"cpus": 0.5, "memory": 1024}, {"cpus": "0.5", "memory": "1024"}),
    "every kind of quantity": ({"cpus": "500m", "memory": "1e9"}, {"cpus": "500m"}),
    "scalars in the environment": (
        {"env": {"EPOCHS": 3, "LR": 1e-4, "DEBUG": True, "NAME": "digits"}},
        {"env": {"EPOCHS": "3", "LR": "0.0001", "DEBUG": "true", "NAME": "digits"}},
    ),
    "a name of 52 characters": ({"name": "d" * 52}, {"name": "d" * 52}),
    "a version that looks like a number": (
        {"image": None, "framework": "tensorflow", "framework_version": 1.5},
        {"framework_version": "1.5"},
    ),
    "a list with a holder": (
        {"command": ["train", 3], "holder_image": "busybox:1"},
        {"command": ["train", "3"]},
    ),
    "labels of queues": (
        {"labels": {"kueue.x-k8s.io/queue-name": "gpus", "team": ""}},
        {"labels": {"kueue.x-k8s.io/queue-name": "gpus", "team": ""}},
    ),
    "reasons by name": ({"restart_on": ["OOMKilled"]}, {"restart_on": (Reason.OOM_KILLED,)}),
    "None is not given": ({"env": None, "name": None}, {"env": {}, "name": None}),
}


@pytest.mark.parametrize("case", RIGHT)
def test_value_is_read_as_it_is_meant(case: str) -> None:
    values, expected = RIGHT[case]
    spec = parse(**values)
    assert {field: getattr(spec, field) for field in expected} == expected


def test_hash_tells_whether_two_tries_ask_for_the_same() -> None:
    assert parse(env={"A": 1, "B": 2}).spec_hash() == parse(env={"B": "2", "A": "1"}).spec_hash()
    assert parse().spec_hash() != parse(learners=3).spec_hash()


def test_spec_survives_json() -> None:
    spec = parse(results=HOST, pod_template={"spec": {"hostNetwork": True}}, restart_on=["Evicted"])
    stored = spec.model_dump(mode="json", exclude_defaults=True)
    assert parse_training_spec(stored) == spec
