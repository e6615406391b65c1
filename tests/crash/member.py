"""A job that takes tiny turns until it is told to stop: `python -m tests.crash.member STOP OUT`.

Each turn counts up in device memory, so that a state that did not come back is seen. OUT gets the epoch of
each grant.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.sim import SimDevice

SIZE = 600 << 10  # of a device of 1 MiB: two do not fit


def count(memory: Any) -> int:
    memory += 1
    assert (memory == memory[0]).all()
    return int(memory[0])


def main(stop: Path, out: Path) -> None:
    interleaver, turns = Interleaver.from_env(), 0
    device, buffer = SimDevice.open(), None
    with out.open("w", buffering=1) as epochs:
        while not stop.exists():
            lease = interleaver.acquire("count", timeout=60)
            print(lease.epoch, file=epochs)
            if buffer is None:
                buffer = device.put(np.zeros(SIZE // 8, dtype=np.int64))
            turns += 1
            counted = device.run("count", count, buffer)
            if counted != turns:
                sys.exit(f"turn {turns}: the device has counted {counted}")
            interleaver.yield_()
    interleaver.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
