"""How fast the sim backend copies, beside a memcpy of as many bytes between two mappings of the same kind."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from figures import seconds

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import MIB, SimConfig

Figures = dict[str, float]
_TRIES = 15


class SimCopies:
    """A job with *mib* MiB on a simulated device."""

    def __init__(self, mib: int) -> None:
        """Make it, and take each way once: the first gets the memory."""
        self._folder = Path(tempfile.mkdtemp(prefix="interleave-bench-", dir=scratch()))
        self._arena = Arena.open(self._folder, SimConfig(devices=1, memory_mib=mib))
        SimDevice(self._arena, 0, "1").put(np.random.default_rng(0).integers(0, 256, mib * MIB, np.uint8))
        self._from, self._to = (self._mapping(name, mib * MIB) for name in ("from", "to"))
        self.round()

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder)

    def round(self) -> Figures:
        """Return the seconds of a memcpy, a snapshot and a restore: the best of several tries by turns.

        By the clock, and beside it in processor time: a memcpy is one thread's work, a move that of several.
        """
        works = {
            "memcpy": self._memcpy,
            "sim_snapshot": lambda: self._arena.snapshot("1"),
            "sim_restore": lambda: self._arena.restore("1"),
        }
        tries = [
            {
                f"{key}{unit}": spent
                for key, work in works.items()
                for unit, spent in _both_clocks(work).items()
            }
            for _ in range(_TRIES)
        ]
        return {key: min(each[key] for each in tries) for key in tries[0]}

    def _memcpy(self) -> None:
        self._to[:] = self._from

    def _mapping(self, name: str, size: int) -> memoryview:
        with (self._folder / name).open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
            view = memoryview(mmap.mmap(file.fileno(), size))
        view[:] = bytes(MIB) * (size // MIB)
        return view


def _both_clocks(work: Callable[[], object]) -> Figures:
    """Return the seconds that *work* takes, by the clock and of processors."""
    figures: Figures = {}
    figures["_s"] = seconds(lambda: figures.update(_cpu_s=seconds(work)), time.perf_counter)
    return figures


def scratch() -> str | None:
    """Return a folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
