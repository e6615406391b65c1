"""Moves the bytes of one buffer between a device and host memory, at a set speed, with a checksum."""

from __future__ import annotations

import threading
import time

from slurm_interleave.client.sim.checksum import CHUNK, Checksum
from slurm_interleave.client.sim.errors import ChecksumMismatch, SimError, StillWorking


class Pace:
    """How fast bytes may move, and until when. The devices of a job move side by side."""

    def __init__(self, bytes_per_s: float, deadline: float, stop: threading.Event | None = None) -> None:
        """*bytes_per_s* 0: no limit; *deadline* on the monotonic clock; *stop* ends the move early."""
        self._bytes_per_s = bytes_per_s
        self._deadline = deadline
        self._stop = stop or threading.Event()
        self._start = time.monotonic()
        self._moved: dict[int, int] = {}

    def moved(self, device: int, size: int) -> None:
        """Wait until *size* more bytes of *device* may have moved. Raises `StillWorking`, `SimError`."""
        self._moved[device] = self._moved.get(device, 0) + size
        due = self._start
        if self._bytes_per_s:
            due += max(self._moved.values()) / self._bytes_per_s
        if max(due, time.monotonic()) > self._deadline:
            raise StillWorking(f"{sum(self._moved.values())} bytes were moved when the time was up; undone")
        if self._stop.wait(max(0.0, due - time.monotonic())):
            raise SimError("stopped, since the job has ended; undone")


def copy(source: memoryview, to: memoryview, device: int, pace: Pace, like: str = "") -> str:
    """Copy *source* to *to*, one of which is on *device*, and return the checksum, of the kind of *like*."""
    seen = Checksum(like)
    for start in range(0, len(source), CHUNK):
        end = min(start + CHUNK, len(source))
        seen.take(source[start:end], to[start:end])
        pace.moved(device, end - start)
    return str(seen)


def copy_back(source: memoryview, to: memoryview, device: int, expected: str, pace: Pace) -> None:
    """Copy saved bytes to *device*. Raises `ChecksumMismatch` if they are not those that were saved."""
    seen = copy(source, to, device, pace, expected)
    if seen != expected:
        raise ChecksumMismatch(
            f"device {device}: a saved buffer of {len(source)} bytes has checksum {seen}, it left with "
            f"{expected}"
        )
