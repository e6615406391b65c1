"""Training and sampling on a device each, with the turns of both taken by one process.

`python -m jobs.driven driver DIR` trains, and takes the turns of both groups. `python -m jobs.driven engine
DIR` samples when it is asked, as the engines of RL frameworks do; it knows nothing of turns. The task is that
of `split.py`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from jobs.split import SEEN, SIZE, Array, awaited, exchanged
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice

TRAINERS, SAMPLERS = "trainers", "samplers"


def drive(args: argparse.Namespace, turns: Interleaver) -> None:
    """Sample, train and hand the weights over, each while the devices that it needs are held."""
    device = SimDevice.open()
    with turns.turn("load", groups=[TRAINERS]):
        weights = device.put(np.zeros(SIZE, np.float32))
    seen = np.zeros(SEEN, np.float32)

    def update(on: Array, gradient: Array) -> None:
        on[:SEEN] += np.float32(0.3) * gradient

    for step in range(1, args.steps + 1):
        with turns.turn("rollout", groups=[SAMPLERS]):
            exchanged(args.dir / f"ask-{step}.npy", seen)
            gradient = awaited(args.dir / f"samples-{step}.npy")
        with turns.turn("train", groups=[TRAINERS]):
            device.run("train", lambda on, by=gradient: update(on, by), weights, seconds=args.seconds)
        with turns.turn("sync", groups=[TRAINERS, SAMPLERS]):  # both, or none
            seen = weights.get()[:SEEN]
            exchanged(args.dir / f"weights-{step}.npy", seen)
            awaited(args.dir / f"taken-{step}.npy")
    (args.dir / "trained.json").write_text(json.dumps(seen.astype(float).tolist()))


def serve(args: argparse.Namespace) -> None:
    """Say in which direction the weights are wrong, and take new ones, when the driver wants it."""
    device = SimDevice.open()
    target = np.random.default_rng(args.seed).normal(size=SEEN).astype(np.float32)
    awaited(args.dir / "ask-1.npy")  # its device is held from here
    policy = device.put(np.zeros(SIZE, np.float32))

    def take(on: Array, latest: Array) -> None:
        on[:SEEN] = latest

    for step in range(1, args.steps + 1):
        awaited(args.dir / f"ask-{step}.npy")
        wrong = device.run("rollout", lambda on: target - on[:SEEN], policy, seconds=args.seconds)
        exchanged(args.dir / f"samples-{step}.npy", wrong)
        latest = awaited(args.dir / f"weights-{step}.npy")
        device.run("take", lambda on, of=latest: take(on, of), policy, seconds=0.0)
        exchanged(args.dir / f"taken-{step}.npy", latest)


def main() -> None:
    """Run one of the two until all steps are done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("driver", "engine"))
    parser.add_argument("dir", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.15, help="least time of a phase")
    args = parser.parse_args()
    if args.role == "engine":
        serve(args)
        return
    turns = Interleaver.from_env()
    try:
        drive(args, turns)
    finally:
        turns.close()


if __name__ == "__main__":
    main()
