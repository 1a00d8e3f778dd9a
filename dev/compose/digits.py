"""The image `digits` for the k3s of docker-compose.yml: made here, as no registry has it."""

import sys
from pathlib import Path

from dev.cluster import oci
from dev.cluster.images import DIGITS, TRAINING_PACKAGES


def main() -> None:
    """Print which packages the image has, or write it around the layer that holds them."""
    match sys.argv[1:]:
        case ["packages"]:
            print(*TRAINING_PACKAGES)
        case ["write", layer, archive]:
            oci.write_image(
                Path(archive), Path(layer), reference=DIGITS.reference, config=DIGITS.config
            )
        case _:
            sys.exit("usage: python -m dev.compose.digits packages | write LAYER ARCHIVE")


if __name__ == "__main__":
    main()
