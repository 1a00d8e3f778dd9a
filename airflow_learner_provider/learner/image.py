"""The image that a learner runs."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_learner_provider.learner.config import DEFAULT_CONFIG, LearnerConfig, read_build


@dataclass(frozen=True)
class Image:
    """The image of a framework, or a custom one.

    :param framework: name of the framework; of a custom image, its name.
    :param version: version of the framework; of a custom image, its tag.
    :param tag: tag of a framework's image; empty leaves it to the installation.
    :param registry: registry of a custom image.
    :param namespace: namespace of a custom image in its registry.
    """

    framework: str = ""
    version: str = ""
    tag: str = ""
    registry: str = ""
    namespace: str = ""


def get_learner_image_for_framework(image: Image, *, config: LearnerConfig = DEFAULT_CONFIG) -> str:
    """Return the full name of an image.

    With registry *and* namespace it is a custom image, ``registry/namespace/framework:version``.
    Otherwise it is ``<learner_registry>/<framework>_gpu_<version>:<tag>``, where the tag is the
    image's own, else the build that the learner-config file gives, else the configured one.

    :param image: the framework, or the custom image.
    :param config: gives registry, tag, and the path of the learner-config file.
    """
    if image.registry and image.namespace:
        return f"{image.registry}/{image.namespace}/{image.framework}:{image.version}"
    tag = (
        image.tag
        or read_build(config.learner_config_path, image.framework, image.version)
        or config.learner_tag
    )
    return f"{config.learner_registry}/{image.framework}_gpu_{image.version}:{tag}"
