"""The one driver of a heterogeneous job, and the engine in its other component.

`python driver.py engine ANSWERS` works on its device when a file in ANSWERS asks it to; `python driver.py
driver NOTES ANSWERS T S` takes the turns of groups T and S, and notes them as `member.py` does.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice
from tests.slurm.member import add_one, note

MIB = 150
ROUNDS = 2


def until(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def engine(answers: Path) -> None:
    """Each round, change what is on the device; at last, say whether all of it survived."""
    device, state = SimDevice.open(), None
    for number in range(ROUNDS + 1):
        until(answers / f"ask-{number}")
        if state is None:
            state = device.put(np.full(MIB << 17, 5.0))
        device.run("add", add_one, state, seconds=0.1)
        whole = bool(np.all(state.get() == 6.0 + number))
        (answers / f"answer-{number}").write_text(str(whole))
    while (answers / "alive").exists():
        time.sleep(0.05)


def ask(answers: Path, number: int) -> str:
    """Have the engine work once; return what it says."""
    (answers / f"ask-{number}").touch()
    until(answers / f"answer-{number}")
    while not (text := (answers / f"answer-{number}").read_text()):
        time.sleep(0.02)
    return text


def drive(notes: Path, answers: Path, trainers: str, samplers: str) -> None:
    """Hold both, then each for itself, and both again."""
    turns, device = Interleaver.from_env(), SimDevice.open()
    with turns.turn("both", groups=[trainers, samplers]) as lease:
        state = device.put(np.full(MIB << 17, 5.0))
        said = [ask(answers, 0)]
        note(notes, "both", epochs=[lease.epoch, *lease.also.values()])
        until(answers / "go")
    for number in range(1, ROUNDS):
        with turns.turn("rollout", groups=[samplers]):
            said.append(ask(answers, number))
        with turns.turn("train", groups=[trainers]):
            device.run("add", add_one, state, seconds=0.1)
    with turns.turn("sync", groups=[trainers, samplers]):
        said.append(ask(answers, ROUNDS))
        whole = bool(np.all(state.get() == 4.0 + ROUNDS))
    note(notes, "finished", job=os.environ["SLURM_JOB_ID"], engine=said, trainer=whole)
    turns.close()
    (answers / "alive").unlink()


if __name__ == "__main__":
    if sys.argv[1] == "engine":
        engine(Path(sys.argv[2]))
    else:
        drive(Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
