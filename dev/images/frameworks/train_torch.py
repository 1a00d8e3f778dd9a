"""Fit a line with PyTorch, data parallel over all processes: run by torchrun, or alone by python.

There is no line about who is where: `init_process_group` reads what the launcher has set.
"""

# What is imported is in the image only.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import line
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train; after each step gradients are averaged over all processes."""
    distributed.init_process_group("gloo")
    process = distributed.get_rank()
    x, y = (torch.from_numpy(part) for part in line.draw_points(process=process))
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=line.LEARNING_RATE)
    for _ in range(line.read_steps()):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    line.tell_result(
        process=process,
        processes=distributed.get_world_size(),
        slope=model.module.weight.item(),
        intercept=model.module.bias.item(),
    )
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
