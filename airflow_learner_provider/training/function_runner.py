"""Runs a function in a learner: shipped as it stands, it needs nothing but Python >= 3.8."""

from __future__ import annotations

import inspect
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

FUNCTION_FILE = "function.py"
ARGUMENTS_FILE = "arguments.json"
# What kubelet keeps of a result.
LONGEST_RESULT = 4096


def find_not_json(value: Any, where: str) -> str | None:
    """Say what in a value is not JSON, and where; None if all of it is.

    :param value: anything.
    :param where: how the value is called.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{where} is {value}, which JSON does not have"
    if isinstance(value, (list, tuple)):
        parts = ((part, f"{where}[{i}]") for i, part in enumerate(value))
    elif isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"{where} has the key {key!r}, which is not a text"
        parts = ((part, f"{where}[{key!r}]") for key, part in value.items())
    else:
        kind = type(value)
        name = kind.__qualname__
        if kind.__module__ != "builtins":
            name = f"{kind.__module__}.{name}"
        return f"{where} is of type {name}, which is not JSON"
    return next((found for found in (find_not_json(*part) for part in parts) if found), None)


def read_rank() -> tuple[int, int]:
    """Return this process's rank, and how many processes there are."""
    for rank, size in (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")):
        if rank in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return int(os.environ["LEARNER_ORDINAL"]), int(os.environ["NUM_LEARNERS"])


def call(
    function: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    rank: int,
    world_size: int,
) -> Any:
    """Call a function with its arguments and, where it takes them, rank and world_size."""
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, value in (("rank", rank), ("world_size", world_size)):
        if takes_all or name in parameters:
            kwargs.setdefault(name, value)
    return function(*args, **kwargs)


def main(folder: str) -> int:
    """Run the function in a folder and return the exit code; rank 0 leaves the result.

    An error ends standard error, of which the task shows the last lines.
    """
    path = os.path.join(folder, FUNCTION_FILE)  # noqa: PTH118 - the text of it is enough
    with open(os.path.join(folder, ARGUMENTS_FILE)) as file:  # noqa: PTH118, PTH123
        asked = json.load(file)
    with open(path) as file:  # noqa: PTH123
        code = compile(file.read(), path, "exec")
    rank, world_size = read_rank()
    try:
        names: dict[str, Any] = {"__name__": "learner_function", "__file__": path}
        exec(code, names)  # noqa: S102 - this is what it is for
        result = call(names[asked["name"]], asked["args"], asked["kwargs"], rank, world_size)
    except Exception:  # noqa: BLE001 - told, and ends the learner
        kind, error, trace = sys.exc_info()
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        print(f"{asked['name']} failed on rank {rank} of {world_size}", file=sys.stderr)  # noqa: T201
        traceback.print_exception(kind, error, trace)
        return 1
    if rank != 0:
        return 0
    wrong = find_not_json(result, "the return value")
    text = "" if wrong else json.dumps(result)
    if len(text.encode()) > LONGEST_RESULT:
        wrong = (
            f"the return value has {len(text.encode())} bytes of JSON, more than {LONGEST_RESULT}; "
            "use a results store"
        )
    if wrong:
        print(f"{asked['name']}: {wrong}", file=sys.stderr)  # noqa: T201
        return 1
    with open(os.environ["LEARNER_RESULT_FILE"], "w") as file:  # noqa: PTH123
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
