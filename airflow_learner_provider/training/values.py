"""Types of single values that users give: what is accepted, and what is said otherwise.

No message repeats the value, which may be a secret.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from airflow_learner_provider.training.naming import MAX_NAME_LENGTH

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?")
# RFC 1035 label for names (a Service may not begin with a digit), RFC 1123 label for namespaces.
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
# https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/
_EXTENDED_RESOURCE = re.compile(
    r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?"
)
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, and older names.
_BUCKET = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]*")
_IMAGE = re.compile(r"\S+")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_LABEL_VALUE = re.compile(r"([a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)?")
_LABEL_KEY = re.compile(
    r"([a-z0-9][-.a-z0-9]{0,252}/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
)
ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def _scalar_to_text(value: object) -> object:
    # Jinja and UI forms give numbers where the API wants text, and text where a person means a
    # number; Kubernetes refuses a number as the value of an environment variable.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return value


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("should be a whole number, not a boolean")  # noqa: TRY004 - for pydantic
    return value


def _image(value: str) -> str:
    if not _IMAGE.fullmatch(value):
        raise ValueError("should be the name of an image, without spaces")
    return value


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not a valid key of a label")
        if not _LABEL_VALUE.fullmatch(value):
            raise ValueError(
                f"{key}: should have at most 63 letters, digits, '-', '_' and '.', "
                "with a letter or digit at both ends"
            )
    return labels


def _quantity(value: str) -> str:
    if not _QUANTITY.fullmatch(value):
        raise ValueError('should be a Kubernetes quantity such as "500m", "2" or "4Gi"')
    return value


def _positive_quantity(value: str) -> str:
    if not re.search("[1-9]", re.split("[eE]", _quantity(value))[0]):
        raise ValueError("should be more than 0")
    return value


def _extended_resource(value: str) -> str:
    if not _EXTENDED_RESOURCE.fullmatch(value):
        raise ValueError('should be a resource name with its domain, such as "amd.com/gpu"')
    return value


def _namespace(value: str) -> str:
    if len(value) > 63 or not _NAMESPACE.fullmatch(value):
        raise ValueError("should be a DNS label: at most 63 lower-case letters, digits and '-'")
    return value


def _training_name(value: str) -> str:
    if len(value) > MAX_NAME_LENGTH:
        raise ValueError(
            f"should have at most {MAX_NAME_LENGTH} characters; Kubernetes cannot create the pods "
            f"of a StatefulSet with a longer name, and this one has {len(value)}"
        )
    if not _NAME.fullmatch(value):
        raise ValueError(
            "should be a DNS label: lower-case letters, digits and '-', beginning with a letter"
        )
    return value


def _absolute_path(value: str) -> str:
    if not value.startswith("/") or ".." in value.split("/"):
        raise ValueError("should be an absolute path without '..'")
    return value


def _artifact(value: str) -> str:
    if not value or value.startswith("/") or ".." in value.split("/") or not value.isprintable():
        raise ValueError("should be a relative path or pattern without '..'")
    return value


def _bucket(value: str) -> str:
    if not _BUCKET.fullmatch(value):
        raise ValueError("should be the name of a bucket; a path in it is given as sub_path")
    return value


def _whole_number(value: str) -> str:
    if not value.isdecimal():
        raise ValueError("should be a whole number of MB")
    return value


Count = Annotated[int, BeforeValidator(_no_boolean)]
ImageName = Annotated[str, AfterValidator(_image)]
Text = Annotated[str, BeforeValidator(_scalar_to_text)]
Quantity = Annotated[Text, AfterValidator(_positive_quantity)]
Labels = Annotated[dict[str, Text], AfterValidator(_labels)]
AbsolutePath = Annotated[str, AfterValidator(_absolute_path)]
Bucket = Annotated[str, AfterValidator(_bucket)]
Megabytes = Annotated[Text, AfterValidator(_whole_number)]
ExtendedResource = Annotated[str, AfterValidator(_extended_resource)]
ArtifactPattern = Annotated[str, AfterValidator(_artifact)]
TrainingName = Annotated[str, AfterValidator(_training_name)]
Namespace = Annotated[str, AfterValidator(_namespace)]
