"""How a learner finds the checkpoint to resume from: the wrapper's own shell, on real folders."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from airflow_learner_provider.training.checkpoints import FIND_CHECKPOINT

FOUND = 'echo "RESUME_FROM=${RESUME_FROM-} RESUME_STEP=${RESUME_STEP-}"'


def write(
    folder: Path,
    step: int,
    files: dict[str, bytes],
    *,
    sums: bool = True,
    indent: int | None = None,
) -> Path:
    """Write a whole checkpoint and return its manifest."""
    folder.mkdir(parents=True)
    described: dict[str, Any] = {}
    for name, content in files.items():
        (folder / name).write_bytes(content)
        described[name] = {"size": len(content)}
        if sums:
            described[name]["sha256"] = hashlib.sha256(content).hexdigest()
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"step": step, "files": described}, indent=indent))
    return manifest


def find(directory: Path | str, **env: str) -> tuple[str, str]:
    """Run the shell; return what it exports, and what it says about those it passes over."""
    done = subprocess.run(
        ["bash", "-c", FIND_CHECKPOINT + FOUND],
        env={"PATH": "/usr/bin:/bin", "CHECKPOINT_DIR": str(directory), **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


def resumed(folder: Path, step: int) -> str:
    return (
        f"learner: resuming from step {step} ({folder})\nRESUME_FROM={folder} RESUME_STEP={step}\n"
    )


NOTHING = "RESUME_FROM= RESUME_STEP=\n"


@pytest.mark.parametrize("directory", ["", "absent", "empty"])
def test_without_a_checkpoint_training_begins_at_the_start(tmp_path: Path, directory: str) -> None:
    (tmp_path / "empty").mkdir()
    assert find(tmp_path / directory if directory else "") == (NOTHING, "")


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_highest_step_is_resumed_whatever_the_folders_are_called(
    tmp_path: Path, sums: bool, indent: int | None
) -> None:
    files = {"model 1.npz": b"abc", "empty.bin": b"", "[odd] {na'me}": b"x\n"}
    for name, step in (("z", 9), ("first one", 1200), ("a", 100)):
        write(tmp_path / name, step, files, sums=sums, indent=indent)
    assert find(tmp_path) == (resumed(tmp_path / "first one", 1200), "")


def test_what_has_no_manifest_is_not_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "1", 1, {"a": b"1"})
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "a").write_bytes(b"half of ")
    assert find(tmp_path) == (resumed(tmp_path / "1", 1), "")


def cut_short(manifest: Path) -> None:
    manifest.write_text(manifest.read_text()[:-1])


def add_words(manifest: Path) -> None:
    manifest.write_text(manifest.read_text() + "x")


def lose_file(manifest: Path) -> None:
    (manifest.parent / "b").unlink()


def lose_bytes(manifest: Path) -> None:
    (manifest.parent / "b").write_bytes(b"2")


def change_byte(manifest: Path) -> None:
    (manifest.parent / "b").write_bytes(b"23")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut_short, "manifest.json is not whole"),
        (add_words, "manifest.json is not whole"),
        (lose_file, "b is missing"),
        (lose_bytes, "b does not have 2 bytes"),
        (change_byte, "b does not have its checksum"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_passed_over(
    tmp_path: Path, damage: Any, words: str
) -> None:
    write(tmp_path / "10", 10, {"a": b"1", "b": b"22"})
    damage(write(tmp_path / "20", 20, {"a": b"1", "b": b"22"}))
    said = f"learner: passing over the checkpoint {tmp_path / '20'}: {words}\n"
    assert find(tmp_path) == (resumed(tmp_path / "10", 10), said)


def test_a_checkpoint_that_the_user_names_is_the_beginning_until_there_is_an_own_one(
    tmp_path: Path,
) -> None:
    other = {"RESUME_FROM": "/models/base", "RESUME_STEP": "7"}
    assert find(tmp_path, **other)[0] == "RESUME_FROM=/models/base RESUME_STEP=7\n"
    write(tmp_path / "1", 1, {"a": b"1"})
    assert find(tmp_path, **other) == (resumed(tmp_path / "1", 1), "")
