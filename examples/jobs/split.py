"""Training and sampling as two programs that hand files to each other, each with a device.

`python -m jobs.split trainer DIR` and `python -m jobs.split sampler DIR`. The task is to move a vector to a
target; what matters is who waits for whom. With --ahead 1 a sampler uses the weights of the step before.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice

SIZE = 10 << 20  # of float32: more than half of a device of the lab, of 64 MiB
SEEN = 64  # of which so many are sampled
Array = NDArray[Any]


def exchanged(path: Path, array: Array) -> None:
    """Write *array* so that who waits for it sees all of it."""
    half = path.with_suffix(".part.npy")
    np.save(half, array)
    half.rename(path)


def awaited(path: Path, limit_s: float = 120.0) -> Array:
    """Return the array in *path* when it is there. Raises `TimeoutError`."""
    until = time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} was not written within {limit_s:g} s")
        time.sleep(0.02)
    return np.asarray(np.load(path))


def train(args: argparse.Namespace, device: SimDevice, turns: Interleaver) -> None:
    """Update the weights by each batch of samples."""
    with turns.turn("load"):
        weights = device.put(np.zeros(SIZE, np.float32))
    exchanged(args.dir / "weights-0.npy", np.zeros(SEEN, np.float32))

    def update(on: Array, gradient: Array) -> None:
        on[:SEEN] += np.float32(0.3) * gradient

    for step in range(1, args.steps + 1):
        gradient = awaited(args.dir / f"samples-{step}.npy")
        with turns.turn("train"):
            device.run("train", lambda on, by=gradient: update(on, by), weights, seconds=args.seconds)
            moved = weights.get()[:SEEN]
        exchanged(args.dir / f"weights-{step}.npy", moved)
    (args.dir / "trained.json").write_text(json.dumps(moved.astype(float).tolist()))


def sample(args: argparse.Namespace, device: SimDevice, turns: Interleaver) -> None:
    """Say for each step in which direction the weights are wrong."""
    target = np.random.default_rng(args.seed).normal(size=SEEN).astype(np.float32)
    with turns.turn("load"):
        policy = device.put(np.zeros(SIZE, np.float32))

    def score(on: Array, latest: Array) -> Array:
        on[:SEEN] = latest
        return target - on[:SEEN]

    for step in range(1, args.steps + 1):
        latest = awaited(args.dir / f"weights-{max(0, step - 1 - args.ahead)}.npy")
        with turns.turn("rollout"):
            wrong = device.run("rollout", lambda on, of=latest: score(on, of), policy, seconds=args.seconds)
        exchanged(args.dir / f"samples-{step}.npy", wrong)


def main() -> None:
    """Run one of the two until all steps are done."""
    parser = argparse.ArgumentParser(description=__doc__)
    works: dict[str, Callable[[argparse.Namespace, SimDevice, Interleaver], None]]
    works = {"trainer": train, "sampler": sample}
    parser.add_argument("role", choices=works)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--ahead", type=int, default=0, help="steps that sampling may be ahead of training")
    parser.add_argument("--seconds", type=float, default=0.15, help="least time of a phase")
    args = parser.parse_args()
    turns = Interleaver.from_env()
    try:
        works[args.role](args, SimDevice.open(), turns)
    finally:
        turns.close()


if __name__ == "__main__":
    main()
