"""Checkpoints of a training: a folder each in $CHECKPOINT_DIR, whole when its manifest is there.

A try that comes later is given the newest whole one as $RESUME_FROM.
"""

# What is imported is in the image only.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

FILE = "arrays.npz"


def save(step: int, **parts: dict[str, Any]) -> None:
    """Write a checkpoint; nothing is done where there is no store that outlives the learners."""
    if not os.environ.get("CHECKPOINT_DIR"):
        return
    folder = Path(os.environ["CHECKPOINT_DIR"]) / f"step-{step:06}"
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"{part}/{name}": array for part in parts for name, array in parts[part].items()}
    np.savez(folder / FILE, **arrays)
    data = (folder / FILE).read_bytes()
    file = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest = folder / "manifest.part"
    manifest.write_text(json.dumps({"step": step, "files": {FILE: file}}))
    manifest.replace(folder / "manifest.json")  # last of all


def load() -> tuple[int, dict[str, dict[str, Any]]]:
    """Read the checkpoint to resume from: its step and parts; step 0 when there is none."""
    if "RESUME_FROM" not in os.environ:
        return 0, {}
    parts: dict[str, dict[str, Any]] = {}
    with np.load(Path(os.environ["RESUME_FROM"]) / FILE) as arrays:
        for key in arrays:
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = arrays[key]
    return int(os.environ["RESUME_STEP"]), parts
