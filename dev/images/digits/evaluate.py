"""Measure a trained network on the test digits; too low an accuracy is a failure."""

# What is imported is in the image only.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import dataset
import numpy as np


def main() -> None:
    """Load model and test digits, tell the accuracy, and compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--minimum", type=float, default=0.9, help="the least accuracy to accept")
    arguments = parser.parse_args()

    data = dataset.load()
    with np.load(arguments.model) as network:
        weighted = data["test_images"] @ network["hidden_weights"] + network["hidden_bias"]
        hidden = np.maximum(weighted, 0)
        scores = hidden @ network["output_weights"] + network["output_bias"]
    accuracy = float(np.mean(np.argmax(scores, axis=1) == data["test_labels"]))
    print(f"accuracy {accuracy:.4f} on {len(scores)} digits that training has not seen")
    result = {"accuracy": round(accuracy, 4), "digits": len(scores)}
    Path(os.environ["LEARNER_RESULT_FILE"]).write_text(json.dumps(result))
    if accuracy < arguments.minimum:
        sys.exit(f"the model is not good enough: {accuracy:.4f} < {arguments.minimum:.4f}")


if __name__ == "__main__":
    main()
