"""What the examples of this folder train on and tell: points near a line, and the line found."""

# What is imported is in the image only.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

SLOPE, INTERCEPT = 3.0, 1.0
LEARNING_RATE = 0.5


def read_steps() -> int:
    """Read from the command line how long to train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    steps: int = parser.parse_args().steps
    return steps


def draw_points(*, process: int, count: int = 256) -> tuple[Any, Any]:
    """Draw the points that one process trains on: x in [-1, 1], y near the line."""
    random = np.random.default_rng(seed=process)
    x = random.uniform(-1, 1, (count, 1)).astype(np.float32)
    noise = random.normal(0, 0.01, (count, 1)).astype(np.float32)
    return x, SLOPE * x + INTERCEPT + noise


def tell_result(*, process: int, processes: int, slope: float, intercept: float) -> None:
    """Print the line that was found; the first process also leaves it as the learner's result."""
    found = {"slope": round(slope, 2), "intercept": round(intercept, 2), "processes": processes}
    print(f"process {process} of {processes} found {json.dumps(found)}", flush=True)
    if process == 0:
        Path(os.environ["LEARNER_RESULT_FILE"]).write_text(json.dumps(found))
