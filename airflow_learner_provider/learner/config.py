"""What an installation decides once for all learners."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# What Go's strconv.ParseBool takes as true.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """The settings of an installation; a field that is left out or None has the seed's default.

    :param image_pull_policy: ``Always``, ``IfNotPresent`` or ``Never``; anything else counts as
        ``IfNotPresent``.
    :param learner_registry: registry, with its path, of the images that are named by framework.
    :param learner_tag: tag of these images where neither the request nor the learner-config file
        gives one.
    :param learner_image_pull_secret: name of the Secret these images are pulled with.
    :param learner_namespace: namespace of the Secrets.
    :param device_plugin: whether nodes offer GPUs as ``nvidia.com/gpu``; a text counts as in Go
        (``"true"``, ``"1"``, ``"t"``... are true, everything else is false).
    :param learner_config_path: the learner-config file: a JSON object
        ``{"frameworks": {NAME: {"versions": [{"version": ..., "build": ...}]}}}``.
    """

    image_pull_policy: str = "IfNotPresent"
    learner_registry: str = "docker.io/ffdl"
    learner_tag: str = "prod"
    learner_image_pull_secret: str = "regcred"  # noqa: S105 - a name, not a password
    learner_namespace: str = "default"
    device_plugin: bool | str = True
    learner_config_path: str | Path = "/etc/learner-config-json/learner-config.json"

    def __post_init__(self) -> None:
        """Give every field that is None its default."""
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is None:
                object.__setattr__(self, field.name, field.default)

    @property
    def has_device_plugin(self) -> bool:
        """``device_plugin`` as a truth value."""
        if isinstance(self.device_plugin, str):
            return self.device_plugin in _TRUE
        return bool(self.device_plugin)


DEFAULT_CONFIG = LearnerConfig()


def read_build(path: str | Path, framework: str, version: str) -> str:
    """Return the build of a framework's version in a learner-config file.

    :param path: the file; it is read anew at each call.
    :param framework: name of the framework, matched exactly.
    :param version: its version; the first entry that matches exactly counts.
    :return: the build; empty if there is none, or if the file cannot be read or is not valid.
    """
    try:
        # Go reads broken UTF-8 as U+FFFD, and a byte order mark as an error; so does this.
        text = Path(path).read_bytes().decode("utf-8", "replace")
        document = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse_constant)
        builds = _parse_frameworks(document)
    except (OSError, ValueError, RecursionError):
        return ""
    return builds.get(framework, {}).get(version, "")


class _Pairs(tuple[tuple[str, Any], ...]):
    """A JSON object with all that was written in it, repeated keys too."""

    __slots__ = ()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_frameworks(document: object) -> dict[str, dict[str, str]]:
    """Return framework -> version -> build; of a version listed twice the first build counts."""
    frameworks: dict[str, dict[str, str]] = {}
    for _, named in _members(document, {"frameworks": _Pairs}):
        if named is None:
            frameworks = {}
            continue
        # The key "frameworks" given twice adds to the first; a framework given twice replaces it.
        for framework, details in named:
            frameworks[framework] = {}
            for _, entries in _members(details, {"versions": list}):
                frameworks[framework] = _parse_versions(entries or [])
    return frameworks


def _parse_versions(entries: list[object]) -> dict[str, str]:
    builds: dict[str, str] = {}
    kinds = {"version": str, "external": bool, "build": str, "prevbuild": str}
    for entry in entries:
        known = {key: member for key, member in _members(entry, kinds) if member is not None}
        if entry is not None:
            builds.setdefault(known.get("version", ""), known.get("build", ""))
    return builds


def _members(value: object, kinds: Mapping[str, type]) -> Iterator[tuple[str, Any]]:
    """Yield the known members of a JSON object as Go decodes them.

    Keys match in any case, unknown ones are passed over, null fits every kind, and any other value
    of the wrong kind makes the whole file invalid.
    """
    if value is None:
        return
    if not isinstance(value, _Pairs):
        raise ValueError("not an object")  # noqa: TRY004 - invalid JSON is a ValueError
    for key, member in value:
        kind = kinds.get(name := key.casefold())
        if kind is None:
            continue
        if member is not None and not isinstance(member, kind):
            raise ValueError(f"{key} is not of type {kind.__name__}")
        yield name, member
