"""A Python function that learners run: the files that carry it, the command that calls it."""

from __future__ import annotations

import builtins
import json
import symtable
from collections.abc import Iterator, Mapping, Sequence
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
    :raises InvalidSpecError: the function uses what is not in it, or an argument is not JSON, and
        it names either; or all of it is too long for a ConfigMap.
    """
    # Types that only the DAG file imports may stand in the function's signature.
    module = f"from __future__ import annotations\n\n{source}"
    _check_is_whole(name, module)
    given = {f"argument {i + 1}": value for i, value in enumerate(args)}
    given |= {f"argument {key}": value for key, value in kwargs.items()}
    for where, value in given.items():
        if wrong := function_runner.find_not_json(value, where):
            raise InvalidSpecError(wrong)
    arguments = {"name": name, "args": list(args), "kwargs": dict(kwargs)}
    files = {
        FUNCTION_FILE: module,
        ARGUMENTS_FILE: json.dumps(arguments),
        RUNNER_FILE: Path(function_runner.__file__).read_text(),
    }
    if (size := sum(len(text.encode()) for text in files.values())) > _LONGEST_FILES:
        raise InvalidSpecError(
            f"source and arguments have {size} bytes, more than {_LONGEST_FILES}; "
            "hand large data on in a store"
        )
    return files


def _check_is_whole(name: str, module: str) -> None:
    """Refuse a function that learners could not call: its module has nothing around it."""
    try:
        tables = list(_list_tables(symtable.symtable(module, FUNCTION_FILE, "exec")))
    except SyntaxError as e:
        raise InvalidSpecError(f"the source of {name} is not Python by itself: {e}") from e
    symbols = [(table, symbol) for table in tables for symbol in table.get_symbols()]
    outer = [symbol for table, symbol in symbols if table is tables[0] or symbol.is_global()]
    made = {symbol.get_name() for symbol in outer if symbol.is_assigned() or symbol.is_imported()}
    if name not in made:
        raise InvalidSpecError(f"{name} is not a function with a name; write it with def")
    there = made | set(dir(builtins)) | {"__file__"}
    used = {symbol.get_name() for symbol in outer if symbol.is_referenced()}
    if missing := sorted(used - there):
        raise InvalidSpecError(
            f"{name} uses {', '.join(missing)} from outside; only the function goes to the "
            "learners, so import or define that in it, or pass it as an argument"
        )


def _list_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from _list_tables(inner)


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
