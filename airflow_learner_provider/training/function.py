"""A Python function that learners run: the files that carry it, the command that calls it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training import function_runner
from airflow_learner_provider.training.function_runner import ARGUMENTS_FILE, FUNCTION_FILE
from airflow_learner_provider.training.spec import FILES_ROOT

RUNNER_FILE = "run.py"
# https://kubernetes.io/docs/concepts/configuration/configmap/#motivation
_LONGEST_FILES = 1000 * 1024


def build_files(
    name: str, source: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, str]:
    """Build the files of a function, by their names.

    :param name: of the function.
    :param source: its definition, as a module of its own.
    :param args: positional arguments.
    :param kwargs: arguments by name.
    :raises InvalidSpecError: an argument is not JSON, and it names the argument; or all of it is
        too long for a ConfigMap.
    """
    given = {f"argument {i + 1}": value for i, value in enumerate(args)}
    given |= {f"argument {key}": value for key, value in kwargs.items()}
    for where, value in given.items():
        if wrong := function_runner.find_not_json(value, where):
            raise InvalidSpecError(f"{name}: {wrong}")
    arguments = {"name": name, "args": list(args), "kwargs": dict(kwargs)}
    files = {
        # Types that only the DAG file imports may stand in the function's signature.
        FUNCTION_FILE: f"from __future__ import annotations\n\n{source}",
        ARGUMENTS_FILE: json.dumps(arguments),
        RUNNER_FILE: Path(function_runner.__file__).read_text(),
    }
    if (size := sum(len(text.encode()) for text in files.values())) > _LONGEST_FILES:
        raise InvalidSpecError(
            f"{name}: its source and arguments have {size} bytes, more than {_LONGEST_FILES}; "
            "hand large data on in a store"
        )
    return files


def build_command(launcher: str, processes_per_learner: int) -> str:
    """The command that calls the function once in every process.

    :param launcher: as in a spec.
    :param processes_per_learner: how many processes torchrun starts in each learner.
    """
    starter = "exec python3"
    if launcher == "mpi":
        starter = "exec mpirun python3"
    elif launcher == "torchrun" and processes_per_learner > 1:
        starter = "exec torchrun"
    return f"{starter} {FILES_ROOT}/{RUNNER_FILE}"
