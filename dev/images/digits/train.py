"""Train a small network on the digits with JAX, data parallel over all learners.

Every learner computes gradients on its own part of the digits; after each step the gradients are
averaged over all of them (an all-reduce over the network), so that all keep the same network.
"""

# What is imported is in the image only.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import checkpoint
import dataset
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

HIDDEN = 128
MOMENTUM = 0.9
LEARNERS = "learners"


def main() -> None:
    """Train, save the network, and tell how good it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--batch", type=int, default=32, help="digits a step and learner")
    arguments = parser.parse_args()

    started = time.monotonic()
    if "JAX_COORDINATOR_ADDRESS" in os.environ:  # set by launcher="jax"
        jax.distributed.initialize()
    learner, learners = jax.process_index(), jax.process_count()
    print(f"learner {learner + 1} of {learners}, {jax.device_count()} devices", flush=True)

    data = dataset.load()
    images, labels = select_own_part(data, learner=learner, learners=learners)
    mesh = jax.make_mesh((jax.device_count(),), (LEARNERS,))
    run_epoch = build_epoch(mesh, arguments.lr)
    done, saved = checkpoint.load()
    fresh = create_network()
    network = replicate(mesh, saved.get("network", fresh))
    velocity = replicate(mesh, saved.get("velocity", jax.tree.map(np.zeros_like, fresh)))
    loss = saved.get("progress", {}).get("loss")
    for epoch in range(done + 1, arguments.epochs + 1):
        shuffle = np.random.default_rng(seed=(learner, epoch))
        batches = build_batches(mesh, images, labels, shuffle, size=arguments.batch)
        network, velocity, loss = run_epoch(network, velocity, batches)
        accuracy = measure_accuracy(read(network), data["test_images"], data["test_labels"])
        print(f"epoch {epoch:2}  loss {float(loss):.4f}  accuracy {accuracy:.4f}", flush=True)
        tell_progress(epoch, arguments.epochs, loss=float(loss), accuracy=accuracy)
        if learner == 0:
            progress = {"loss": loss}
            checkpoint.save(
                epoch, network=read(network), velocity=read(velocity), progress=progress
            )

    accuracy = measure_accuracy(read(network), data["test_images"], data["test_labels"])
    model = Path(os.environ["RESULT_DIR"]) / "model.npz"
    if learner == 0:
        model.parent.mkdir(parents=True, exist_ok=True)
        np.savez(model, **read(network))
    result = {
        "accuracy": round(accuracy, 4),
        "resumed_from": done,
        "loss": round(float(loss), 4),
        "epochs": arguments.epochs,
        "seconds": round(time.monotonic() - started, 1),
        "model": str(model),
    }
    Path(os.environ["LEARNER_RESULT_FILE"]).write_text(json.dumps(result))


def tell_progress(step: int, total: int, **metrics: float) -> None:
    """Print a line that Airflow shows as progress."""
    print(json.dumps({"step": step, "total": total, **metrics}), flush=True)


def select_own_part(data: dict[str, Any], *, learner: int, learners: int) -> tuple[Any, Any]:
    """Return the digits that this learner trains on: every n-th, equally many for each learner."""
    count = len(data["train_images"]) // learners * learners
    part = slice(learner, count, learners)
    return data["train_images"][part], data["train_labels"][part]


def create_network() -> dict[str, Any]:
    """Make the network that training begins with, the same on every learner."""
    random = np.random.default_rng(seed=0)
    shapes = {"hidden": (64, HIDDEN), "output": (HIDDEN, 10)}
    network = {}
    for layer, shape in shapes.items():
        network[f"{layer}_weights"] = random.normal(0, shape[0] ** -0.5, shape).astype(np.float32)
        network[f"{layer}_bias"] = np.zeros(shape[1], np.float32)
    return network


def compute_scores(network: dict[str, Any], images: Any) -> Any:
    """Score each of the ten digits for each image."""
    hidden = jax.nn.relu(images @ network["hidden_weights"] + network["hidden_bias"])
    return hidden @ network["output_weights"] + network["output_bias"]


def compute_loss(network: dict[str, Any], images: Any, labels: Any) -> Any:
    """Return the mean cross entropy."""
    scores = jax.nn.log_softmax(compute_scores(network, images))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


def build_epoch(mesh: Any, learning_rate: float) -> Any:
    """Compile one pass over the batches; every device runs it on its own, in step."""

    def run_step(state: tuple[Any, Any], batch: tuple[Any, Any]) -> tuple[tuple[Any, Any], Any]:
        network, velocity = state
        loss, gradients = jax.value_and_grad(compute_loss)(network, *batch)
        loss, gradients = jax.lax.pmean((loss, gradients), LEARNERS)  # here the learners meet
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradients)
        network = jax.tree.map(lambda n, v: n - learning_rate * v, network, velocity)
        return (network, velocity), loss

    def run_epoch(network: Any, velocity: Any, batches: tuple[Any, Any]) -> tuple[Any, Any, Any]:
        (network, velocity), losses = jax.lax.scan(run_step, (network, velocity), batches)
        return network, velocity, losses.mean()

    same, split = PartitionSpec(), PartitionSpec(None, LEARNERS)
    epoch = jax.shard_map(
        run_epoch,
        mesh=mesh,
        in_specs=(same, same, (split, split)),
        out_specs=(same, same, same),
        check_vma=False,  # else the gradients would be summed before this code averages them
    )
    return jax.jit(epoch)


def build_batches(mesh: Any, images: Any, labels: Any, shuffle: Any, *, size: int) -> Any:
    """Shuffle this learner's digits and join them with the others' to batches."""
    steps = len(images) // size
    order = shuffle.permutation(len(images))[: steps * size]
    sharding = NamedSharding(mesh, PartitionSpec(None, LEARNERS))
    parts = (part[order].reshape(steps, size, *part.shape[1:]) for part in (images, labels))
    return tuple(jax.make_array_from_process_local_data(sharding, part) for part in parts)


def replicate(mesh: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """Put the same arrays on every device."""
    sharding = NamedSharding(mesh, PartitionSpec())
    return {
        name: jax.make_array_from_process_local_data(sharding, array)
        for name, array in arrays.items()
    }


def read(network: dict[str, Any]) -> dict[str, Any]:
    """Copy the network from this learner's device."""
    return {name: np.asarray(array.addressable_data(0)) for name, array in network.items()}


def measure_accuracy(network: dict[str, Any], images: Any, labels: Any) -> float:
    """Return the share of digits that are recognised."""
    return float(np.mean(np.argmax(compute_scores(network, images), axis=1) == labels))


if __name__ == "__main__":
    main()
