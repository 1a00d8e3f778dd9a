"""What the README says is there has to be there."""

import re
from pathlib import Path

from airflow_learner_provider.training.spec import TrainingSpec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_options_are_those_of_the_spec() -> None:
    rows = re.findall(r"^\| (`.+?) \|", README, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    beside_the_image = {"framework", "framework_version"}
    assert named | beside_the_image == set(TrainingSpec.model_fields)


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", README, re.MULTILINE))
    assert {name for pair in named for name in pair if name} <= targets
