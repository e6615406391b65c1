"""A sequential train and sample loop on Ray, in turns, on a simulated device: ray_loop.py OUT [STEPS].

The loop says nothing of turns: the decorators do.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray

from slurm_interleave.client.integrations.ray import RayTurns
from slurm_interleave.client.sim import SimDevice

SIZE = 150_000  # of float32: 0.6 MB
turns = RayTurns.from_env()


@turns.actor
@ray.remote(num_gpus=1)
class Trainer:
    """Its weights are on the device."""

    def __init__(self, seed: int) -> None:
        self.device = SimDevice.open()
        start = np.random.default_rng(seed).normal(size=SIZE).astype(np.float32)
        self.weights = self.device.put(start)

    def sample(self, step: int) -> float:
        """Return the mean of some weights."""
        return float(self.device.run("sample", lambda weights: weights[step::97].mean(), self.weights))

    def train(self, reward: float) -> None:
        """Move the weights by what came of them."""

        def update(weights: Any) -> None:
            weights *= np.float32(1 - 0.1 * abs(reward))

        self.device.run("train", update, self.weights)


def connect() -> None:
    """Join the job's own cluster, which may be starting. Raises `ConnectionError` if it does not start."""
    until = time.monotonic() + 60
    while not _joined():
        if time.monotonic() > until:
            raise ConnectionError(f"no Ray at {os.environ.get('RAY_ADDRESS')} within 60 s; see its start.log")
        time.sleep(0.25)


def _joined() -> bool:
    try:
        ray.init(log_to_driver=False, logging_level="ERROR")
    except ConnectionError:
        return False
    return True


def main(out: Path, steps: int = 5, told: Callable[[int], None] = lambda _: None) -> None:
    """Train, call *told* after each step, and write their means."""
    connect()
    trainer = Trainer.remote(1)
    means = []
    for step in range(steps):
        means.append(ray.get(trainer.sample.remote(step)))
        ray.get(trainer.train.remote(means[-1]))
        told(step)
    turns.close()
    cluster = ray.get_runtime_context().gcs_address
    out.write_text(json.dumps({"means": means, "cluster": cluster, "asked": os.environ["RAY_ADDRESS"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
