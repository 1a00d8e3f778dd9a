"""What users install is the wheel, not this checkout: build it and use it from outside."""

import json
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from airflow_learner_provider import __version__

ROOT = Path(__file__).parents[2]
UV = find_uv_bin()


def run(*command: str | Path) -> str:
    return subprocess.run(command, cwd="/", check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    run(
        *(UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable),
        *("--out-dir", dist, ROOT),
    )
    [built] = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and what it depends on, from uv's cache, which `make venv` filled."""
    folder = tmp_path_factory.mktemp("installed")
    venv = folder / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, venv)
    needed = {canonicalize_name(name) for name in find_needed("airflow-learner-provider")}
    pins = re.split(r"^(?=[a-z0-9])", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    lock = folder / "requirements.lock"
    lock.write_text("".join(pin for pin in pins if pin.partition("==")[0] in needed))
    # uv's cache has the packages, but not what a resolver would ask the registry about them.
    quiet = ("--quiet", "--offline", "--python", venv / "bin/python")
    run(UV, "pip", "sync", *quiet, "--require-hashes", lock)
    run(UV, "pip", "install", *quiet, "--no-deps", wheel)
    run(UV, "pip", "check", *quiet[:1], *quiet[2:])
    return venv / "bin"


def find_needed(name: str) -> set[str]:
    """The packages that an installed one declares, and those that they declare in turn."""
    found: set[tuple[str, tuple[str, ...]]] = set()
    open_: list[tuple[str, tuple[str, ...]]] = [(name, ())]
    while open_:
        package, with_extras = open_.pop()
        for text in metadata.requires(package) or []:
            asked = Requirement(text)
            entry = (asked.name, tuple(sorted(asked.extras)))
            wanted = not asked.marker or any(
                asked.marker.evaluate({"extra": extra}) for extra in ("", *with_extras)
            )
            if wanted and entry not in found:
                found.add(entry)
                open_.append(entry)
    return {package for package, _ in found}


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    listing = ("ls-files", "--cached", "--others", "--exclude-standard", "airflow_learner_provider")
    sources = run("git", "-C", ROOT, *listing).splitlines()
    written = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]
    info = [f"airflow_learner_provider-{__version__}.dist-info/{name}" for name in written]
    assert sorted(zipfile.ZipFile(wheel).namelist()) == sorted(sources + info)


def test_airflow_lists_the_installed_provider(installed: Path) -> None:
    listed = json.loads(run(installed / "airflow", "providers", "list", "--output", "json"))
    versions = {provider["package_name"]: provider["version"] for provider in listed}
    assert versions["airflow-learner-provider"] == __version__


def test_every_module_imports_with_the_declared_dependencies(installed: Path) -> None:
    program = """
import importlib, pkgutil, airflow_learner_provider as package
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
"""
    run(installed / "python", "-c", program)
