"""The NumPy GRPO of the examples, made small: `python -m tests.frameworks.numpy_job OUT SEED STEPS`.

Its state is on the device alone, and the agent moves it without being told how.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo.job import Run
from grpo.settings import Settings
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.sim import SimDevice
from tests.frameworks.watched import tell_step, until_wanted


class Wanted:
    """Turns that last until the partner waits."""

    def __init__(self, turns: Interleaver) -> None:
        self._turns = turns

    @contextmanager
    def turn(self, phase: str = "") -> Iterator[None]:
        with self._turns.turn(phase):
            yield
            until_wanted(self._turns)


def main(out: Path, seed: int, steps: int) -> None:
    out.mkdir(parents=True)
    turns, rewards = Interleaver.from_env(), list[dict[str, float]]()

    def told(step: int, reward: float) -> None:
        rewards.append({"step": step, "reward": reward})
        tell_step(out, step)

    times = {"rollout_seconds": 0.0, "train_seconds": 0.0, "reward_seconds": 0.0}
    settings = Settings(seed=seed, steps=steps, prompts=8, digits=3, hidden=32, **times)
    trained = Run(settings, SimDevice.open(), Wanted(turns), told).train()
    results = {"steps": rewards, "weights": trained.parameters.tobytes().hex()}
    (out / "results").write_text(json.dumps(results, indent=1))
    turns.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
