"""A job of the tests that moves its own device state into its own memory, as torch's offload does.

Run as `python app_member.py NOTES GO [--again]`: a turn, then none until GO is there; with --again another
one. Its state must be whole then.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from member import note

from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.workload import Workload

# 150 MiB in parts, so that they are at no time there twice.
PARTS, PART = 15, 10 << 17


class State:
    """Numbers on a simulated device, or in arrays of this process."""

    tags: Sequence[str] = ()
    can_discard = False
    arena_bytes = 0

    def __init__(self, device: SimDevice) -> None:
        self._device = device
        self._buffers = [device.put(np.full(PART, float(os.getpid()))) for _ in range(PARTS)]
        self._saved: list[np.ndarray] = []

    def suspend(self, tags: Sequence[str], *, discard: bool) -> None:  # noqa: ARG002
        while self._buffers:
            buffer = self._buffers.pop()
            self._saved.append(buffer.get())
            buffer.free()

    def resume(self, tags: Sequence[str]) -> None:  # noqa: ARG002
        while self._saved:
            self._buffers.append(self._device.put(self._saved.pop()))

    def check(self) -> None:
        assert len(self._buffers) == PARTS
        assert all(np.all(buffer.get() == os.getpid()) for buffer in self._buffers)


def main(notes: Path, go: Path, *, again: bool) -> None:
    interleaver = Interleaver.from_env()
    with interleaver.turn("first"):
        state = State(SimDevice.open())
        workload = Workload.from_env(state)
        assert workload is not None
        note(notes, "granted")
    note(notes, "yielded")
    while not go.exists():
        time.sleep(0.05)
    if again:
        with interleaver.turn("second") as lease:
            state.check()
            note(notes, "granted", restored=lease.context_restored)
    state.check()
    workload.close()
    note(notes, "finished")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), again="--again" in sys.argv[3:])
