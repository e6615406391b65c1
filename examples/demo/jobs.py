"""The two jobs of the demo, and what they leave behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class DemoJob:
    """One RL job; *label* names it in the tables."""

    label: str
    seed: int
    steps: int

    def command(self, out: Path) -> list[str]:
        """Return the job's command line; it writes its results to *out*."""
        argv = [sys.executable, "-m", "grpo", "--seed", str(self.seed), "--steps", str(self.steps)]
        return [*argv, "--out", str(out)]

    @staticmethod
    def environment() -> Mapping[str, str]:
        """Return what the command needs in its environment."""
        return {"PYTHONPATH": str(EXAMPLES)}


@dataclass(frozen=True)
class Outcome:
    """What a finished run left: wall times in seconds since the Unix epoch, rewards by step, and a hash."""

    start: float
    end: float
    rewards: tuple[str, ...]  # as written, so that equal means bit-identical
    params_sha256: str

    @property
    def seconds(self) -> float:
        """Wall time of the run."""
        return self.end - self.start


def read_outcome(out: Path) -> Outcome:
    """Return the results in *out*; raises `OSError` or `ValueError` if the run did not finish."""
    summary = json.loads((out / "summary.json").read_text())
    rewards = tuple((out / "rewards.csv").read_text().splitlines()[1:])
    digest = (out / "params.sha256").read_text().split()[0]
    return Outcome(float(summary["start"]), float(summary["end"]), rewards, digest)


def step_reached(out: Path) -> tuple[int, str]:
    """Return the last step that a running job has written, and its reward."""
    try:
        lines = (out / "rewards.csv").read_text().splitlines()[1:]
    except FileNotFoundError:
        return 0, ""
    if not lines:
        return 0, ""
    return len(lines), lines[-1].rpartition(",")[2]
