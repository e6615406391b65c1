"""The example `torch_train`, alone and by turns: under random turns and an orchestrator that starts anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from lab import LocalLab
from lab.processes import wait_until
from tests.torch import needs

EXAMPLES = Path(__file__).parents[2] / "examples"
ENV = {"PYTHONPATH": str(EXAMPLES), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
# Holds the devices until all that is to take turns is there.
GATE = """
import sys, time
from pathlib import Path
from slurm_interleave.client import Interleaver
with Interleaver.from_env().turn("gate"):
    print("held", flush=True)
    while not all(Path(each).exists() for each in sys.argv[1:]):
        time.sleep(0.02)
"""
TWO_RANKS = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

pytestmark = pytest.mark.timeout(600)
assert needs.torch


def command(out: Path, seed: int, steps: int, launcher: Sequence[str] = (), pause: float = 0.0) -> list[str]:
    options = [f"--out={out}", f"--seed={seed}", f"--steps={steps}", f"--pause={pause}"]
    return [sys.executable, *launcher, "-m", "torch_train", *options]


def alone(out: Path, seed: int, steps: int, launcher: Sequence[str] = ()) -> tuple[str, str]:
    subprocess.run(command(out, seed, steps, launcher), env={**os.environ, **ENV}, check=True)
    return result(out)


def result(out: Path) -> tuple[str, str]:
    return (out / "losses.txt").read_text(), (out / "weights.sha256").read_text()


def moves(out: Path) -> int:
    return int(json.loads((out / "summary.json").read_text())["moves"])


def steps_done(out: Path) -> int:
    losses = out / "losses.txt"
    return losses.read_text().count("\n") if losses.exists() else 0


@pytest.fixture(scope="module")
def lab() -> Iterator[LocalLab]:
    with LocalLab.start(devices=1, config={"agent": {"backend": "noop"}}) as started:
        yield started


def by_turns(lab: LocalLab, group: str, commands: Mapping[Path, Sequence[str]]) -> list[str]:
    """Start *commands*, whose results go to the folders that they stand with, once all can have a turn."""
    gate = lab.submit([sys.executable, "-c", GATE, *map(str, commands)], group=group)
    assert wait_until(lambda: "held" in lab.output(gate), 60), lab.output(gate)
    return [lab.submit(each, group=group, env=ENV) for each in commands.values()]


def test_trainings_of_one_rank_and_of_two_take_turns_and_end_with_the_bits_of_each_alone(
    lab: LocalLab, tmp_path: Path
) -> None:
    one, two, steps = tmp_path / "one", tmp_path / "two", 15
    commands = {
        one: command(one, 1, 3 * steps, pause=0.05),
        two: command(two, 2, steps, TWO_RANKS, pause=0.05),
    }

    jobs = by_turns(lab, "pair", commands)
    assert wait_until(lambda: min(map(steps_done, commands)) >= 4, 200)
    lab.kill9("interleaved")
    lab.start_again("interleaved")

    assert [lab.wait(job, 200) for job in jobs] == [0, 0], "\n".join(map(lab.output, jobs))
    assert result(one) == alone(tmp_path / "one-alone", 1, 3 * steps)
    assert result(two) == alone(tmp_path / "two-alone", 2, steps, TWO_RANKS)
    assert min(moves(one), moves(two)) >= 10
