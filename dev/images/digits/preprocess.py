"""Write scikit-learn's handwritten digits, split for training and testing, to the data volume."""

# What is imported is in the image only.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import dataset
import numpy as np
from sklearn.datasets import load_digits


def main() -> None:
    """Split, scale, save, and tell what was saved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test-share", type=float, default=0.2)
    arguments = parser.parse_args()

    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(seed=0).permutation(len(images))
    test, train = np.split(order, [int(len(order) * arguments.test_share)])
    checksum = dataset.save(
        {
            "train_images": images[train],
            "train_labels": labels[train],
            "test_images": images[test],
            "test_labels": labels[test],
        }
    )
    print(f"wrote {len(train)} digits to train and {len(test)} to test with to {dataset.FILE}")
    result = {"train": len(train), "test": len(test), "checksum": checksum}
    Path(os.environ["LEARNER_RESULT_FILE"]).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
