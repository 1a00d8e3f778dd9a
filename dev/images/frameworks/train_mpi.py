"""Fit a line with NumPy, data parallel over all processes that mpirun starts."""

# What is imported is in the image only.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import line
import numpy as np
from mpi4py import MPI


def main() -> None:
    """Train; in each step gradients are averaged over all processes."""
    world = MPI.COMM_WORLD
    print(f"process {world.rank} of {world.size} on {MPI.Get_processor_name()}", flush=True)
    x, y = line.draw_points(process=world.rank)
    slope = intercept = 0.0
    for _ in range(line.read_steps()):
        error = slope * x + intercept - y
        gradients = np.array([np.mean(2 * error * x), np.mean(2 * error)])
        average = world.allreduce(gradients) / world.size
        slope, intercept = np.array([slope, intercept]) - line.LEARNING_RATE * average
    line.tell_result(
        process=world.rank, processes=world.size, slope=float(slope), intercept=float(intercept)
    )


if __name__ == "__main__":
    main()
