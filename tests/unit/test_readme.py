"""What the README says is there has to be there."""

import re
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag

from airflow_learner_provider.training.spec import TrainingSpec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_options_are_those_of_the_spec() -> None:
    rows = re.findall(r"^\| (`.+?) \|", README, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    elsewhere = {"framework", "framework_version", "files"}  # beside the image; by @task.learner
    assert named | elsewhere == set(TrainingSpec.model_fields)


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", README, re.MULTILINE))
    assert {name for pair in named for name in pair if name} <= targets


def test_the_matrix_names_tests_that_are_there() -> None:
    named = re.findall(r"^  (test_\w+\.py)::(\w+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests/cluster" / file).read_text()


def test_example_parses(tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.+?)```", README, re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    bag = DagBag(tmp_path)
    assert bag.import_errors == {}
    assert bag.dag_ids == ["digits"]
