"""Fit a line with TensorFlow, data parallel over all learners.

There is no line about who is where: `MultiWorkerMirroredStrategy` reads TF_CONFIG.
"""

# What is imported is in the image only.
# mypy: disable-error-code="import-not-found,import-untyped,untyped-decorator"

from __future__ import annotations

import line
import tensorflow as tf


def main() -> None:
    """Train; in each step gradients are averaged over all learners."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    process = strategy.cluster_resolver.task_id
    x, y = line.draw_points(process=process)
    with strategy.scope():
        slope, intercept = tf.Variable(0.0), tf.Variable(0.0)

    @tf.function
    def run_step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((slope * x + intercept - y) ** 2)
        gradients = tape.gradient(loss, [slope, intercept])
        replica = tf.distribute.get_replica_context()
        gradients = replica.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        for variable, gradient in zip((slope, intercept), gradients, strict=True):
            variable.assign_sub(line.LEARNING_RATE * gradient)

    for _ in range(line.read_steps()):
        strategy.run(run_step)
    line.tell_result(
        process=process,
        processes=strategy.num_replicas_in_sync,
        slope=float(slope.numpy()),
        intercept=float(intercept.numpy()),
    )


if __name__ == "__main__":
    main()
