"""`python -m torch_train`, or by torchrun with several ranks: a training on PyTorch that takes turns."""

from __future__ import annotations

import argparse
from pathlib import Path

from torch_train.job import Settings, train


def main() -> None:
    """Train, and leave losses and the hash of the final weights in the folder that is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="at most so many seconds off the device a step"
    )
    train(Settings(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
