"""A try's request for a training: everything that the coroutine needs, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from airflow_learner_provider.training.naming import Owner, build_training_name
from airflow_learner_provider.training.spec import TrainingSpec, parse_training_spec


@dataclass(frozen=True)
class TrainingRequest:
    """What a try of a task wants to be run.

    :param deadline: Unix time in seconds at which it fails, whatever it is doing.
    :param version: of the provider, kept on the objects.
    """

    spec: TrainingSpec
    owner: Owner
    deadline: float | None
    version: str

    @property
    def name(self) -> str:
        """Name of the training's objects."""
        return self.spec.name or build_training_name(self.owner)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, for a trigger's arguments."""
        return {
            "spec": self.spec.model_dump(mode="json", exclude_defaults=True),
            "owner": asdict(self.owner),
            "deadline": self.deadline,
            "version": self.version,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Build from what `to_json` returned."""
        spec = parse_training_spec(values["spec"])
        return cls(spec, Owner(**values["owner"]), values["deadline"], values["version"])
