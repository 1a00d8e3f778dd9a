"""The configuration, and the learner-config file as the original reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider.learner import Container, LearnerConfig, create_container_spec
from airflow_learner_provider.learner.config import read_build

VERSION = '{"version": "1.5", "build": "b"}'


def test_what_is_not_set_has_the_originals_default() -> None:
    unset: dict[str, Any] = dict.fromkeys(LearnerConfig.__dataclass_fields__)
    assert LearnerConfig(**unset) == LearnerConfig()
    assert LearnerConfig() == LearnerConfig(
        image_pull_policy="IfNotPresent",
        learner_registry="docker.io/ffdl",
        learner_tag="prod",
        learner_image_pull_secret="regcred",
        learner_namespace="default",
        device_plugin=True,
        learner_config_path="/etc/learner-config-json/learner-config.json",
    )


@pytest.mark.parametrize(
    ("given", "policy"),
    [("Always", "Always"), ("Never", "Never"), ("always", "IfNotPresent"), ("", "IfNotPresent")],
)
def test_an_unknown_pull_policy_counts_as_if_not_present(given: str, policy: str) -> None:
    built = create_container_spec(Container(), config=LearnerConfig(image_pull_policy=given))
    assert built.image_pull_policy == policy


@pytest.mark.parametrize(
    ("device_plugin", "resource"),
    [
        (True, "nvidia.com/gpu"),
        ("t", "nvidia.com/gpu"),
        (False, "alpha.kubernetes.io/nvidia-gpu"),
        ("tRUE", "alpha.kubernetes.io/nvidia-gpu"),
        ("", "alpha.kubernetes.io/nvidia-gpu"),
    ],
)
def test_the_device_plugin_decides_what_gpus_are_called(
    *, device_plugin: bool | str, resource: str
) -> None:
    config = LearnerConfig(device_plugin=device_plugin)
    resources = create_container_spec(Container(), config=config).resources
    assert resources is not None
    assert resources.limits == resources.requests == {"cpu": "0", "memory": "0", resource: "0"}


def test_gpus_may_be_called_otherwise() -> None:
    resources = create_container_spec(Container(), gpu_resource="amd.com/gpu").resources
    assert resources is not None
    assert resources.limits == {"cpu": "0", "memory": "0", "amd.com/gpu": "0"}


@pytest.mark.parametrize(
    ("text", "build"),
    [
        pytest.param('{"versions": [%s]}', "b", id="plain"),
        pytest.param('{"VERSIONS": [{"Version": "1.5", "BUILD": "b"}]}', "b", id="other case"),
        pytest.param('{"versions": [{"ver\u017fion": "1.5", "build": "b"}]}', "b", id="long s"),
        pytest.param('{"versions": [null, %s, {"version": "1.5"}]}', "b", id="first match"),
        pytest.param('{"versions": [{"version": "1.5"}, %s]}', "", id="first match has no build"),
        pytest.param(
            '{"versions": [{"version": "1.5", "build": "b", "build": null}]}',
            "b",
            id="a null changes nothing",
        ),
        pytest.param('{"versions": [%s], "versions": null}', "", id="a null list is empty"),
        pytest.param('{"versions": [], "versions": [%s]}', "b", id="the last list counts"),
        pytest.param('{"versions": [%s]}, "f": {}', "", id="the last framework counts"),
        pytest.param('{"versions": [%s]}, "g": {"versions": {}}', "", id="wrong type elsewhere"),
        pytest.param('{"versions": [%s, {"external": "yes"}]}', "", id="wrong type of flag"),
        pytest.param('{"versions": [%s, 3]}', "", id="wrong type of entry"),
        pytest.param('{"versions": [%s], "size": NaN}', "", id="not JSON but Python"),
        pytest.param('{"versions": [%s], "note": [{}, "\ud83d"]}', "b", id="broken text"),
        pytest.param('{"versions": [%s], "deep": ' + "[" * 10**5 + "}", "", id="too deep"),
        pytest.param("[]", "", id="a list"),
    ],
)
def test_a_build_is_found_as_the_original_finds_it(text: str, build: str, tmp_path: Path) -> None:
    path = tmp_path / "learner-config.json"
    document = f'{{"frameworks": {{"f": {text.replace("%s", VERSION)}}}}}'
    path.write_bytes(document.encode("utf-8", "surrogatepass"))
    assert read_build(path, "f", "1.5") == build


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("learner-config.json", "master-14"),
        ("learner-config-uppercase.json", "upper-1"),
        ("learner-config-dup-merge.json", "dup-1"),
        *(
            (f"learner-config-{name}.json", "")
            for name in ("bom", "dup", "empty-file", "empty-object", "invalid", "null")
        ),
        ("learner-config-trailing.json", ""),
        ("learner-config-wrong-type.json", ""),
        ("no-such-file.json", ""),
        ("", ""),
    ],
)
def test_a_file_that_is_not_valid_has_no_builds(name: str, build: str) -> None:
    folder = Path(__file__).parents[2] / "data" / "golden" / "config"
    assert read_build(folder / name, "tensorflow", "1.5") == build
