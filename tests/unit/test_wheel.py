"""What users install is the wheel, not this checkout: build it and use it from outside."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
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
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, venv)
    run(
        *(UV, "pip", "install", "--quiet", "--offline", "--python", venv / "bin/python"),
        *("--constraint", ROOT / "requirements.lock", wheel),
    )
    return venv / "bin"


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
