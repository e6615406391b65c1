"""Takes turns of random lengths until the file is there: `python -m tests.frameworks.partner FILE SEED`.

Its state fills most of the device and is checked in each turn.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import numpy as np

from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.sim import SimDevice

SIZE = 900 << 10  # of a device of 1 MiB


def main(stop: Path, seed: int) -> None:
    interleaver, dice = Interleaver.from_env(), random.Random(seed)
    state = np.frombuffer(dice.randbytes(SIZE), np.uint8)
    device, buffer = SimDevice.open(), None
    while not stop.exists():
        with interleaver.turn("partner"):
            if buffer is None:
                buffer = device.put(state)
            assert (buffer.get() == state).all()
            time.sleep(dice.uniform(0, 0.1))  # it works
        time.sleep(dice.uniform(0, 0.1))
    interleaver.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
