"""The command line, and the files that a run leaves."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from grpo.job import Run, Trained
from grpo.settings import Settings, flag
from slurm_interleave.client import InterleaveError, Interleaver
from slurm_interleave.client.sim import SimDevice


@dataclass
class Output:
    """The folder of the results: rewards as they come; the summary last, so that it means a complete run."""

    folder: Path
    start: float

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "summary.json").unlink(missing_ok=True)
        (self.folder / "rewards.csv").write_text("step,mean_reward\n")

    def add(self, step: int, reward: float) -> None:
        """Write the reward of one step, with all its bits."""
        with (self.folder / "rewards.csv").open("a") as file:
            file.write(f"{step},{reward!r}\n")

    def finish(self, settings: Settings, trained: Trained) -> None:
        """Write the parameters, their hash (for `sha256sum -c`) and the summary."""
        np.savez(self.folder / "params.npz", parameters=trained.parameters)
        digest = hashlib.sha256((self.folder / "params.npz").read_bytes()).hexdigest()
        (self.folder / "params.sha256").write_text(f"{digest}  params.npz\n")
        summary = {
            "seed": settings.seed,
            "steps": len(trained.rewards),
            "final_reward": trained.rewards[-1],
            "start": self.start,
            "end": time.time(),
            "device_s": trained.device_s,
            "device_bytes": trained.device_bytes,
        }
        (self.folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Train as the options say; 0 if the run is complete."""
    start = time.time()
    try:
        settings, folder = _parse(argv)
        _train(settings, Output(folder, start))
    except (InterleaveError, OSError) as error:
        sys.stderr.write(f"grpo: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _train(settings: Settings, output: Output) -> None:
    def told(step: int, reward: float) -> None:
        output.add(step, reward)
        wall_s = time.time() - output.start
        print(f"step {step}/{settings.steps}  reward {reward:.3f}  wall {wall_s:.1f} s", flush=True)

    interleaver = Interleaver.from_env()
    try:
        output.finish(settings, Run(settings, SimDevice.open(), interleaver, told).train())
    finally:
        interleaver.close()


def _parse(argv: Sequence[str] | None) -> tuple[Settings, Path]:
    parser = argparse.ArgumentParser(prog="grpo", description="Train a policy to sort digits, by GRPO.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the results")
    for option in fields(Settings):
        text = f"{option.metadata['help']} (default %(default)s)"
        parser.add_argument(
            flag(option.name), type=type(option.default), default=option.default, help=text, metavar="N"
        )
    values = vars(parser.parse_args(argv))
    folder = values.pop("out")
    return Settings(**values), folder
