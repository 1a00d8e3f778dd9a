"""The user's pod template, in every form that users have (kubernetes-client/python#2435)."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import (
    V1Container,
    V1EnvVar,
    V1EnvVarSource,
    V1LabelSelector,
    V1LabelSelectorRequirement,
    V1ObjectMeta,
    V1PodSpec,
    V1PodTemplateSpec,
    V1Probe,
    V1SecretKeySelector,
    V1TCPSocketAction,
    V1Toleration,
    V1TopologySpreadConstraint,
)

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.pod_template import fill_in, parse_pod_template

AS_IN_YAML: dict[str, Any] = {
    "metadata": {"annotations": {"team_name": "vision"}},
    "spec": {
        "nodeSelector": {"gpu_type": "a100"},
        "hostIPC": True,
        "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 60}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {
                    "matchExpressions": [{"key": "team_name", "operator": "In", "values": ["a_b"]}]
                },
            }
        ],
        "containers": [
            {
                "name": "learner",
                "imagePullPolicy": "Always",
                "env": [
                    {
                        "name": "api_key",
                        "valueFrom": {"secretKeyRef": {"name": "keys", "key": "api_key"}},
                    }
                ],
                "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 3},
            }
        ],
    },
}

AS_IN_PYTHON: dict[str, Any] = {
    "metadata": {"annotations": {"team_name": "vision"}},
    "spec": {
        "node_selector": {"gpu_type": "a100"},
        "host_ipc": True,
        "tolerations": [{"key": "gpu", "operator": "Exists", "toleration_seconds": 60}],
        "topology_spread_constraints": [
            {
                "max_skew": 1,
                "topology_key": "zone",
                "when_unsatisfiable": "ScheduleAnyway",
                "label_selector": {
                    "match_expressions": [{"key": "team_name", "operator": "In", "values": ["a_b"]}]
                },
            }
        ],
        "containers": [
            {
                "name": "learner",
                "image_pull_policy": "Always",
                "env": [
                    {
                        "name": "api_key",
                        "value_from": {"secret_key_ref": {"name": "keys", "key": "api_key"}},
                    }
                ],
                "readiness_probe": {"tcp_socket": {"port": 80}, "period_seconds": 3},
            }
        ],
    },
}

CONTAINER = V1Container(
    name="learner",
    image_pull_policy="Always",
    env=[
        V1EnvVar(
            name="api_key",
            value_from=V1EnvVarSource(
                secret_key_ref=V1SecretKeySelector(name="keys", key="api_key")
            ),
        )
    ],
    readiness_probe=V1Probe(tcp_socket=V1TCPSocketAction(port=80), period_seconds=3),
)
REQUIREMENT = V1LabelSelectorRequirement(key="team_name", operator="In", values=["a_b"])
SPREAD = V1TopologySpreadConstraint(
    max_skew=1,
    topology_key="zone",
    when_unsatisfiable="ScheduleAnyway",
    label_selector=V1LabelSelector(match_expressions=[REQUIREMENT]),
)
TEMPLATE = V1PodTemplateSpec(
    metadata=V1ObjectMeta(annotations={"team_name": "vision"}),
    spec=V1PodSpec(
        node_selector={"gpu_type": "a100"},
        host_ipc=True,
        tolerations=[V1Toleration(key="gpu", operator="Exists", toleration_seconds=60)],
        topology_spread_constraints=[SPREAD],
        containers=[CONTAINER],
    ),
)

FORMS: dict[str, Any] = {
    "as in YAML": AS_IN_YAML,
    "as in Python": AS_IN_PYTHON,
    "model": TEMPLATE,
    "model as a dict": TEMPLATE.to_dict(),
    "models within a dict": {
        **AS_IN_YAML,
        "spec": {**AS_IN_PYTHON["spec"], "containers": [CONTAINER]},
    },
    "both spellings": {
        **AS_IN_YAML,
        "spec": {**AS_IN_YAML["spec"], "containers": AS_IN_PYTHON["spec"]["containers"]},
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_json(form: str) -> None:
    given_template = FORMS[form]
    before = copy.deepcopy(given_template)
    assert parse_pod_template(given_template) == AS_IN_YAML
    assert given_template == before


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt key": ({"spec": {"nodeselector": {}}}, "pod_template.spec.nodeselector: is not a"),
    "a misspelt key, deep in it": (
        {"spec": {"containers": [{"name": "a"}, {"name": "b", "imagePullpolicy": "Always"}]}},
        "pod_template.spec.containers[1].imagePullpolicy: is not a known key",
    ),
    "a list that is none": (
        {"spec": {"containers": {"name": "learner"}}},
        "pod_template.spec.containers: should be a list",
    ),
    "a mapping that is none": ({"spec": []}, "pod_template.spec: should be a mapping"),
    "labels that are no mapping": (
        {"metadata": {"labels": ["a"]}},
        "pod_template.metadata.labels: should be a mapping",
    ),
    "a pod that is not restarted": (
        {"spec": {"restart_policy": "Never"}},
        "pod_template.spec.restartPolicy: a StatefulSet takes only Always",
    ),
    "another command": (
        {"spec": {"containers": [{"name": "learner", "args": ["true"]}]}},
        "pod_template.spec.containers: the command of 'learner' is given by command=",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistake_is_told_by_its_place(mistake: str) -> None:
    template, message = WRONG[mistake]
    with pytest.raises(InvalidSpecError) as raised:
        parse_pod_template(template)
    assert str(raised.value).startswith(message)


def test_what_a_statefulset_takes_is_left_as_it_is() -> None:
    template = {"spec": {"restartPolicy": "Always", "containers": [{"name": "a", "args": ["b"]}]}}
    assert parse_pod_template(template) == template


def test_key_that_is_none_is_not_given() -> None:
    assert parse_pod_template({"spec": {"nodeSelector": None}}) == {"spec": {}}


BUILT = {
    "a": 1,
    "m": {"x": 1, "y": 1},
    "containers": [
        {"name": "learner", "image": "built", "env": [{"name": "A", "value": "built"}]},
        {"name": "holder", "image": "built"},
    ],
    "tolerations": [{"key": "gpu"}],
}
MERGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "a value": ({"a": 2}, {"a": 2}),
    "a new value": ({"b": 2}, {"b": 2}),
    "a part of a mapping": ({"m": {"x": 2, "z": 2}}, {"m": {"x": 2, "y": 1, "z": 2}}),
    "a part of a container": (
        {"containers": [{"name": "learner", "image": "given", "tty": True}]},
        {
            "containers": [
                {
                    "name": "learner",
                    "image": "given",
                    "env": [{"name": "A", "value": "built"}],
                    "tty": True,
                },
                {"name": "holder", "image": "built"},
            ]
        },
    ),
    "another container, which comes last": (
        {"containers": [{"name": "aaa"}]},
        {"containers": [*BUILT["containers"], {"name": "aaa"}]},  # type: ignore[misc]
    ),
    "a variable of a container": (
        {"containers": [{"name": "learner", "env": [{"name": "A", "value": "given"}]}]},
        {
            "containers": [
                {"name": "learner", "image": "built", "env": [{"name": "A", "value": "given"}]},
                {"name": "holder", "image": "built"},
            ]
        },
    ),
    "an entry without a name": (
        {"tolerations": [{"key": "spot"}, {"key": "gpu"}]},
        {"tolerations": [{"key": "gpu"}, {"key": "spot"}]},
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_template_wins_wherever_both_speak(case: str) -> None:
    template, changed = MERGED[case]
    before = copy.deepcopy((template, BUILT))
    assert fill_in(template, BUILT) == BUILT | changed
    assert (template, BUILT) == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda parts: st.dictionaries(st.sampled_from("abc"), parts, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@given(MAPPINGS)
def test_empty_template_changes_nothing(built: dict[str, Any]) -> None:
    assert fill_in({}, built) == built


@given(MAPPINGS, MAPPINGS)
def test_merging_twice_is_merging_once(template: dict[str, Any], built: dict[str, Any]) -> None:
    merged = fill_in(template, built)
    assert fill_in(template, merged) == merged
