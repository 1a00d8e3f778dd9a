"""Every task start parses its DAG file again: what a DAG imports from here has to cost nothing.

Modules are counted, because seconds depend on the machine: one of ours takes about a millisecond,
while a Kubernetes client brings hundreds of them and takes three seconds.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

import pytest

import airflow_learner_provider

PACKAGE = "airflow_learner_provider"
FACES = [
    f"{PACKAGE}.{path.stem}"
    for path in sorted(Path(airflow_learner_provider.__file__).parent.glob("*.py"))
    if path.stem in {"operators", "decorators", "sensors", "triggers", "hooks", "links", "retry"}
]
# In a process of its own: what airflow.sdk loads is there first, then come the faces, one by one.
PROGRAM = """
import importlib, json, sys
import airflow.sdk, airflow.triggers.base, pydantic

def models(base):
    for model in base.__subclasses__():
        yield model.__module__
        yield from models(model)

modules = {}
for name in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(name)
    modules[name] = sorted(set(sys.modules) - before)
print(json.dumps({"modules": modules, "models": sorted(set(models(pydantic.BaseModel)))}))
"""


class Imported(TypedDict):
    """What the process has loaded: modules by the face that brought them, and where models live."""

    modules: dict[str, list[str]]
    models: list[str]


@pytest.fixture(scope="module")
def imported() -> Imported:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, PACKAGE, *FACES],
        capture_output=True, check=True, env=dict(os.environ), text=True,
    )  # fmt: skip
    result: Imported = json.loads(run.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("name", [PACKAGE, *FACES])
def test_face_loads_nothing_but_ours_and_the_task_sdk(name: str, imported: Imported) -> None:
    free = sys.stdlib_module_names | {PACKAGE}
    foreign = [
        module
        for module in imported["modules"][name]
        if module.split(".")[0] not in free
        and not module.startswith(("airflow.sdk.", "airflow.triggers."))
    ]
    assert foreign == []


def test_faces_load_few_modules(imported: Imported) -> None:
    modules = [module for added in imported["modules"].values() for module in added]
    assert len(modules) <= 15  # the faces, our exceptions, two of the Task SDK's; some to spare


def test_faces_define_no_pydantic_model(imported: Imported) -> None:
    assert [module for module in imported["models"] if module.startswith(PACKAGE)] == []
