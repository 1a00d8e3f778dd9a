"""The pull secret of a custom image: the original's vectors, and what a second try finds."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from kubernetes.client import ApiException, CoreV1Api, V1Secret

from airflow_learner_provider import learner
from airflow_learner_provider.exceptions import InvalidSpecError, ObjectConflictError
from tests.unit.learner.vectors import VECTORS, Json, as_json, config_of, ids, model

SECRETS = [vector for vector in VECTORS if vector["function"] == "generate_image_pull_secret"]


class FakeCoreV1Api(CoreV1Api):
    """Keeps Secrets in a dict, as the vectors' own fake did."""

    def __init__(self, existing: dict[str, V1Secret], create_error: str | None) -> None:
        self.secrets = existing
        self.create_error = create_error
        self.attempts: list[tuple[str, V1Secret]] = []
        self.timeouts: list[int] = []

    def create_namespaced_secret(self, namespace: str, body: V1Secret, **options: Any) -> V1Secret:
        self.timeouts.append(options["_request_timeout"])
        assert body.metadata is not None
        key = f"{namespace}/{body.metadata.name}"
        self.attempts.append((namespace, body))
        if self.create_error:
            raise ApiException(status=500, reason=self.create_error)
        if key in self.secrets:
            raise ApiException(status=409, reason="AlreadyExists")
        self.secrets[key] = body
        return body

    def read_namespaced_secret(self, name: str, namespace: str, **options: Any) -> V1Secret:
        self.timeouts.append(options["_request_timeout"])
        return self.secrets[f"{namespace}/{name}"]


@pytest.mark.parametrize("vector", SECRETS, ids=ids(SECRETS))
def test_ours_makes_the_pull_secret_that_the_original_made(vector: dict[str, Json]) -> None:
    value, output, effects = vector["input"], vector["output"], vector.get("side_effects")
    location = value["image_location"]
    request = learner.JobDeploymentRequest(
        value["name"],
        value["training_id"],
        None if location is None else learner.ImageLocation(**location),
    )
    attempted: Json = effects and effects["secret_attempted"]
    api = FakeCoreV1Api(
        {key: model(attempted, V1Secret) for key in value.get("existing_secrets", [])},
        value.get("create_error"),
    )
    config = config_of(vector)

    if "token is missing" in vector["error"]:
        with pytest.raises(InvalidSpecError, match=f"access_token: {vector['error']}"):
            learner.generate_image_pull_secret(api, request, config=config)
    elif value.get("create_error"):
        with pytest.raises(ApiException, match=value["create_error"]):
            learner.generate_image_pull_secret(api, request, config=config)
    else:  # the Secret that is there already is the same one, and taken over
        assert learner.generate_image_pull_secret(api, request, config=config) == output["name"]

    attempts = as_json(api.attempts)
    if effects is None:
        assert attempts == []
    else:
        secret = attempted | {"apiVersion": "v1", "kind": "Secret"}
        assert attempts == [(effects["namespace"], secret)]
        dockercfg = base64.b64decode(secret["data"][".dockercfg"]).decode()
        assert dockercfg == effects["dockercfg_text"]


REQUEST = learner.JobDeploymentRequest(
    "job", "training-1", learner.ImageLocation("registry.example.com", "team", "t0ken")
)


def existing(**changes: Any) -> dict[str, V1Secret]:
    api = FakeCoreV1Api({}, None)
    learner.generate_image_pull_secret(api, REQUEST)
    secret = api.secrets["default/customimage-job"]
    for name, value in changes.items():
        setattr(secret, name, value)
    return api.secrets


def test_an_identical_pull_secret_is_taken_over() -> None:
    api = FakeCoreV1Api(existing(), None)
    assert learner.generate_image_pull_secret(api, REQUEST) == "customimage-job"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"data": {".dockercfg": "e30="}}, id="other content"),
        pytest.param({"type": "Opaque"}, id="other type"),
        pytest.param({"metadata": None}, id="other training"),
    ],
)
def test_another_secret_of_that_name_is_a_conflict(changes: dict[str, Any]) -> None:
    api = FakeCoreV1Api(existing(**changes), None)
    with pytest.raises(ObjectConflictError, match=r"^Secret default/customimage-job exists"):
        learner.generate_image_pull_secret(api, REQUEST)


def test_a_failed_create_raises() -> None:
    api = FakeCoreV1Api({}, "the quota is used up")
    with pytest.raises(ApiException, match="the quota is used up"):
        learner.generate_image_pull_secret(api, REQUEST)


def test_every_api_request_has_a_time_limit() -> None:
    api = FakeCoreV1Api(existing(), None)
    learner.generate_image_pull_secret(api, REQUEST, request_timeout=7)
    assert api.timeouts == [7, 7]


def test_a_token_shows_neither_in_repr_nor_in_an_error() -> None:
    api = FakeCoreV1Api(existing(type="Opaque"), None)
    with pytest.raises(ObjectConflictError) as error:
        learner.generate_image_pull_secret(api, REQUEST)
    assert "t0ken" not in f"{REQUEST!r} {error.value!r}"
