"""The Secret that a custom image is pulled with."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubernetes.client import ApiException, V1ObjectMeta, V1Secret

from airflow_learner_provider.exceptions import InvalidSpecError, ObjectConflictError
from airflow_learner_provider.learner.config import DEFAULT_CONFIG, LearnerConfig

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api

# Go writes these characters in JSON as escapes, so that it can stand in HTML and in JavaScript.
_GO_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


@dataclass(frozen=True)
class ImageLocation:
    """Where a custom image is.

    :param registry: its registry, as in the image's name.
    :param namespace: its namespace in the registry.
    :param access_token: token of the registry's user ``token``; it does not show in ``repr``.
    :param email: of that user, for registries that ask for it.
    """

    registry: str = ""
    namespace: str = ""
    access_token: str = field(default="", repr=False)
    email: str = ""


@dataclass(frozen=True)
class JobDeploymentRequest:
    """What is asked for, as far as pulling its image needs it.

    :param name: name of the job.
    :param training_id: the training it belongs to.
    :param image_location: where its custom image is; None if it has none.
    """

    name: str = ""
    training_id: str = ""
    image_location: ImageLocation | None = None


def generate_image_pull_secret(
    core_v1_api: CoreV1Api,
    request: JobDeploymentRequest,
    *,
    config: LearnerConfig = DEFAULT_CONFIG,
    request_timeout: int = 30,
) -> str:
    """Return the name of the Secret to pull an image with; of a custom image it is created first.

    An identical Secret that exists already is taken over, so that this may be tried again.

    :param core_v1_api: creates the Secret.
    :param request: gives name, training and custom image.
    :param config: gives the namespace, and the name of the Secret if there is no custom image.
    :param request_timeout: seconds that one API request may take.
    :raises InvalidSpecError: the custom image comes without a token.
    :raises ObjectConflictError: another Secret of that name exists.
    :raises ApiException: the API server refused.
    """
    if request.image_location is None:
        return config.learner_image_pull_secret
    secret = build_image_pull_secret(request, request.image_location, config=config)
    name, namespace = _secret_name(request), config.learner_namespace
    try:
        core_v1_api.create_namespaced_secret(namespace, secret, _request_timeout=request_timeout)
    except ApiException as e:
        if e.status != 409:
            raise
        existing = core_v1_api.read_namespaced_secret(
            name, namespace, _request_timeout=request_timeout
        )
        if not _is_same(existing, secret):
            raise ObjectConflictError(
                f"Secret {namespace}/{name} exists with other content; delete it, or give the job"
                " another name"
            ) from e
    return name


def build_image_pull_secret(
    request: JobDeploymentRequest,
    location: ImageLocation,
    *,
    config: LearnerConfig = DEFAULT_CONFIG,
    name: str | None = None,
    username: str = "token",
) -> V1Secret:
    """Build the Secret that a custom image is pulled with.

    :param request: gives name and training.
    :param location: gives registry and token.
    :param config: gives the namespace.
    :param name: name of the Secret, if it is not to be the seed's, ``customimage-`` and the job's.
    :param username: the registry's user, if it knows others than ``token``.
    :raises InvalidSpecError: there is no token.
    """
    token = location.access_token
    if not token:
        raise InvalidSpecError(
            "image_location.access_token: Custom image access token is missing,"
            " give one that may pull from the registry"
        )
    entry = {
        "username": username,
        "password": token,
        **({"email": location.email} if location.email else {}),
        "auth": _base64(f"{username}:{token}"),
    }
    dockercfg = json.dumps({location.registry: entry}, ensure_ascii=False, separators=(",", ":"))
    return V1Secret(
        api_version="v1",
        kind="Secret",
        metadata=V1ObjectMeta(
            name=name or _secret_name(request),
            namespace=config.learner_namespace or None,
            labels={"training_id": request.training_id},
        ),
        type="kubernetes.io/dockercfg",
        data={".dockercfg": _base64(dockercfg.translate(_GO_ESCAPES))},
    )


def _secret_name(request: JobDeploymentRequest) -> str:
    return f"customimage-{request.name}"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _training_id(secret: V1Secret) -> str | None:
    labels = (secret.metadata and secret.metadata.labels) or {}
    return labels.get("training_id")


def _is_same(existing: V1Secret, wanted: V1Secret) -> bool:
    return (
        existing.type == wanted.type
        and existing.data == wanted.data
        and _training_id(existing) == _training_id(wanted)
    )
