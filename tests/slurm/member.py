"""A job of the tests: takes turns, works on a simulated device in each, and notes what happened.

Run as `python member.py NOTES --turns N ...`; each line of NOTES is a JSON object with `event` and `at`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from slurm_interleave.client import InterleaveError, Interleaver
from slurm_interleave.client.sim import SimDevice


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("notes", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--until", type=Path, help="go on after --turns turns until this file is there")
    parser.add_argument("--hold", type=float, default=0.1, help="seconds of work in a turn")
    parser.add_argument("--idle", type=float, default=0.0, help="seconds without work in a turn")
    parser.add_argument("--off", type=float, default=0.05, help="seconds between two turns")
    parser.add_argument("--mib", type=int, default=150, help="memory on the device")
    parser.add_argument("--wait-for", type=Path, help="file that must be there before the first acquire")
    parser.add_argument("--hold-for", type=Path, help="file that must be there before the first turn ends")
    parser.add_argument("--stay", action="store_true", help="go on running after an error")
    args = parser.parse_args()
    while args.wait_for is not None and not args.wait_for.exists():
        time.sleep(0.05)
    interleaver = Interleaver.from_env()
    try:
        take_turns(interleaver, args)
    except InterleaveError as error:
        note(args.notes, type(error).__name__, text=str(error))
        while args.stay:
            time.sleep(1)
        return 3
    note(args.notes, "finished")
    return 0


def take_turns(interleaver: Interleaver, args: argparse.Namespace) -> None:
    device, state, done = SimDevice.open(), None, 0
    while done < args.turns or not (args.until is None or args.until.exists()):
        with interleaver.turn(f"turn-{done}") as lease:
            note(args.notes, "granted", epoch=lease.epoch, restored=lease.context_restored)
            if state is None:
                state = device.put(np.full(args.mib << 17, float(os.getpid())))
            device.run("add", add_one, state, seconds=args.hold)
            note(args.notes, "worked", epoch=lease.epoch)
            time.sleep(args.idle)
            while args.hold_for is not None and not args.hold_for.exists():
                time.sleep(0.05)
            note(args.notes, "yielding", epoch=lease.epoch)
        done += 1
        time.sleep(args.off)
    with interleaver.turn("check"):
        assert state is None or np.all(state.get() == os.getpid() + done)


def add_one(values: np.ndarray) -> None:
    values += 1.0


def note(path: Path, event: str, **fields: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps({"event": event, "at": time.time(), **fields}) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
