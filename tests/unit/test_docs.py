"""What README and docs show is code that parses, DAGs that load, and messages that exist."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(*languages: str) -> list[Any]:
    """Each code block in these languages, with the page and line as its name."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            if match[2] in languages:
                line = text.count("\n", 0, match.start()) + 1
                found.append(pytest.param(textwrap.dedent(match[3]), id=f"{page.name}:{line}"))
    return found


PYTHON = blocks("python")
DAG_FILES = [
    block for block in PYTHON if re.search(r"^ *with DAG\(", block.values[0], re.MULTILINE)
]


@pytest.mark.parametrize("code", PYTHON)
def test_python_parses(code: str) -> None:
    ast.parse(code)


@pytest.mark.parametrize("code", DAG_FILES)
def test_dag_file_loads(code: str, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(code)
    bag = DagBag(tmp_path, bundle_path=tmp_path, bundle_name="docs")
    assert bag.import_errors == {}
    assert len(bag.dags) == 1


@pytest.mark.parametrize("code", blocks("bash", "sh", "shell"))
def test_shell_parses(code: str) -> None:
    subprocess.run(["bash", "-n"], input=code, text=True, check=True)


@pytest.mark.parametrize("code", blocks("yaml", "json"))
def test_data_parses(code: str) -> None:
    assert list(yaml.safe_load_all(code))
    if code.startswith("{"):
        json.loads(code)


def test_every_block_names_its_language() -> None:
    known = {"python", "bash", "sh", "shell", "yaml", "json", "text"}
    assert {match[2] for page in PAGES for match in BLOCK.finditer(page.read_text())} <= known


def test_every_page_can_be_found() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in DOCS.glob("*.md") if f": {page.name}\n" not in navigation] == []


def test_messages_are_those_of_the_code() -> None:
    sources = "".join(
        path.read_text() for path in sorted((ROOT / "airflow_learner_provider").rglob("*.py"))
    )
    # A text over several lines is one text; what is filled in may be anything.
    joined = re.sub(r'"\s*f?"', "", sources)
    code = re.sub(r"\{[^{}]*\}", "<>", joined)
    messages = re.findall(
        r"^\| (`.+?`) +(?:in the task's log )?\|", (DOCS / "errors.md").read_text(), re.MULTILINE
    )
    quoted = [part for cell in messages for part in re.findall(r"`(.+?)`", cell)]
    assert len(quoted) > 20
    fragments = {
        fragment.strip(" ;()")
        for message in quoted
        for fragment in re.split(r"<\w+>|\b\d+\b|in_cluster and kube_config", message)
        if len(fragment) > 12
    }
    assert [fragment for fragment in sorted(fragments) if fragment not in code] == []
