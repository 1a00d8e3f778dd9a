"""A Python function that learners run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider.exceptions import InvalidSpecError
from airflow_learner_provider.training.function import build_command, build_files
from airflow_learner_provider.training.function_runner import find_not_json


class Model:
    pass


FIT = "def fit(): pass"
NOT_JSON: dict[str, tuple[Any, str]] = {
    "a set": ({1}, "x is of type set, which is not JSON"),
    "an object": (Model(), f"x is of type {__name__}.Model, which is not JSON"),
    "deep inside": ({"a": [1, {"b": b""}]}, "x['a'][1]['b'] is of type bytes, which is not JSON"),
    "no number": ([float("nan")], "x[0] is nan, which JSON does not have"),
    "a key": ({1: 2}, "x has the key 1, which is not a text"),
}


@pytest.mark.parametrize("case", NOT_JSON)
def test_what_is_not_json_is_named(case: str) -> None:
    value, said = NOT_JSON[case]
    assert find_not_json(value, "x") == said


def test_json_is_json() -> None:
    assert find_not_json({"a": [1, 2.5, True, None, "text", (1, 2)]}, "x") is None


def test_arguments_that_are_no_json_or_too_long_are_refused_by_name() -> None:
    with pytest.raises(InvalidSpecError, match=r"^argument 2 is of type set"):
        build_files("fit", FIT, [1, {2}], {})
    with pytest.raises(InvalidSpecError, match=r"^argument rate\['a'\] is of type bytes"):
        build_files("fit", FIT, [], {"rate": {"a": b""}})
    with pytest.raises(InvalidSpecError, match=r"^source and arguments have \d+ bytes"):
        build_files("fit", FIT, ["x" * 1024 * 1024], {})


NOT_WHOLE = {
    "an import": ("def fit(x): return np.zeros(x)", "fit uses np from outside"),
    "a function": (
        "def fit(x):\n    def g(): return help_me(x)\n    return g",
        "uses help_me from",
    ),
    "a default": ("def fit(x=DEFAULT): pass", "fit uses DEFAULT from outside"),
    "a decorator": ("@cached\n@functools.cache\ndef fit(): pass", "uses cached, functools from"),
    "no name": ("call(lambda: 1)", "fit is not a function with a name; write it with def"),
    "no module": (
        "    def fit(): pass",
        "the source of fit is not Python by itself: unexpected indent",
    ),
}


@pytest.mark.parametrize("case", NOT_WHOLE)
def test_a_function_that_is_not_whole_is_refused(case: str) -> None:
    source, said = NOT_WHOLE[case]
    with pytest.raises(InvalidSpecError, match=said):
        build_files("fit", source, [], {})


def test_a_function_may_use_what_it_makes_and_what_python_has() -> None:
    source = """
def fit(data: Frame, *, rank: int = 0) -> Frame:
    import json
    global seen
    seen = [json, len, __name__, __file__, fit, rank]
    class Model:
        size = rank
    return [json.dumps(part) for part in seen if data.np or Model]
"""
    assert set(build_files("fit", source, [], {})) == {"function.py", "arguments.json", "run.py"}


COMMANDS = {
    ("none", 1): "exec python3 /job/files/run.py",
    ("jax", 1): "exec python3 /job/files/run.py",
    ("torchrun", 1): "exec python3 /job/files/run.py",
    ("torchrun", 2): "exec torchrun /job/files/run.py",
    ("mpi", 2): "exec mpirun python3 /job/files/run.py",
}


@pytest.mark.parametrize("given", COMMANDS)
def test_command(given: tuple[str, int]) -> None:
    assert build_command(*given) == COMMANDS[given]


LEARNER = {"LEARNER_ORDINAL": "0", "NUM_LEARNERS": "2"}
ADD = "def f(a, b=2):\n    return {'sum': a + b}\n"
RANKS = "def f(*, rank, world_size):\n    return [rank, world_size]\n"
RUNS: dict[str, tuple[str, list[Any], dict[str, str], tuple[int, str | None, str]]] = {
    "what rank 0 returns is the result": (ADD, [1], LEARNER, (0, '{"sum": 3}', "")),
    "others leave none": (ADD, [1], LEARNER | {"LEARNER_ORDINAL": "1"}, (0, None, "")),
    "rank and size of the learner": (RANKS, [], LEARNER, (0, "[0, 2]", "")),
    "rank and size of the process": (
        RANKS,
        [],
        LEARNER | {"LEARNER_ORDINAL": "1", "RANK": "0", "WORLD_SIZE": "4"},
        (0, "[0, 4]", ""),
    ),
    "whoever takes everything": (
        "def f(**all): return sorted(all)",
        [],
        LEARNER,
        (0, '["rank", "world_size"]', ""),
    ),
    "types that are not there": ("def f(a: Any) -> Any: return a", [7], LEARNER, (0, "7", "")),
    "nothing": ("def f(): pass", [], LEARNER, (0, "null", "")),
    "a result that is not JSON": (
        "def f(): return {'loss': {1}}",
        [],
        LEARNER,
        (1, None, "f: the return value['loss'] is of type set, which is not JSON\n"),
    ),
    "a result that is too long": (
        "def f(): return 'x' * 4096",
        [],
        LEARNER,
        (
            1,
            None,
            "f: the return value has 4098 bytes of JSON, more than 4096; use a results store\n",
        ),
    ),
}


@pytest.mark.parametrize("case", RUNS)
def test_run(tmp_path: Path, case: str) -> None:
    source, args, environment, expected = RUNS[case]
    assert run(tmp_path, source, args, environment) == expected


def test_an_error_is_told_from_the_function_on(tmp_path: Path) -> None:
    code, result, said = run(tmp_path, "def f(a):\n    return 1 / a\n", [0], LEARNER)
    assert (code, result) == (1, None)
    assert said.splitlines()[0] == "f failed on rank 0 of 2"
    assert said.splitlines()[1] == "Traceback (most recent call last):"
    assert said.splitlines()[2].endswith('function.py", line 4, in f')
    assert said.splitlines()[3].strip() == "return 1 / a"
    assert said.splitlines()[-1] == "ZeroDivisionError: division by zero"


def run(
    folder: Path, source: str, args: list[Any], environment: dict[str, str]
) -> tuple[int, str | None, str]:
    """Run a function as a learner does; return exit code, result and what it said of errors."""
    for name, text in build_files("f", source, args, {}).items():
        (folder / name).write_text(text)
    left = folder / "result"
    ran = subprocess.run(
        [sys.executable, "-I", folder / "run.py"],
        env=environment | {"LEARNER_RESULT_FILE": str(left)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if left.exists():
        json.loads(left.read_text())
    return ran.returncode, left.read_text() if left.exists() else None, ran.stderr
