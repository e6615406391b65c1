"""Moves the bytes of one buffer between a device and host memory, at a set speed, with a checksum.

Several threads do it: the engines of a device copy at the speed of memory, which one processor that takes the
checksum too does not reach.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from slurm_interleave.client.core.threads import start
from slurm_interleave.client.sim.checksum import Checksum
from slurm_interleave.client.sim.errors import ChecksumMismatch, SimError, StillWorking

_THREADS = 4  # more of them do not get more of one memory


class Pace:
    """How fast bytes may move, and until when. The devices of a job move side by side, threads too."""

    def __init__(self, bytes_per_s: float, deadline: float, stop: threading.Event | None = None) -> None:
        """*bytes_per_s* 0: no limit; *deadline* on the monotonic clock; *stop* ends the move early."""
        self._bytes_per_s = bytes_per_s
        self._deadline = deadline
        self._stop = stop or threading.Event()
        self._start = time.monotonic()
        self._moved: dict[int, int] = {}
        self._lock = threading.Lock()

    def moved(self, device: int, size: int) -> None:
        """Wait until *size* more bytes of *device* may have moved. Raises `StillWorking`, `SimError`."""
        with self._lock:
            self._moved[device] = self._moved.get(device, 0) + size
            furthest, total = max(self._moved.values()), sum(self._moved.values())
        due = self._start
        if self._bytes_per_s:
            due += furthest / self._bytes_per_s
        if max(due, time.monotonic()) > self._deadline:
            raise StillWorking(f"{total} bytes were moved when the time was up; undone")
        if self._stop.wait(max(0.0, due - time.monotonic())):
            raise SimError("stopped; undone")


def copy(source: memoryview, to: memoryview, device: int, pace: Pace, like: str = "") -> str:
    """Copy *source* to *to*, one of which is on *device*, and return the checksum, of the kind of *like*."""
    seen = Checksum(len(source), like)

    def move(part: int) -> None:
        pace.moved(device, seen.take(part, source, to))

    _side_by_side(move, seen.parts)
    return str(seen)


def copy_back(source: memoryview, to: memoryview, device: int, expected: str, pace: Pace) -> None:
    """Copy saved bytes to *device*. Raises `ChecksumMismatch` if they are not those that were saved."""
    seen = copy(source, to, device, pace, expected)
    if seen != expected:
        raise ChecksumMismatch(
            f"device {device}: a saved buffer of {len(source)} bytes has checksum {seen}, it left with "
            f"{expected}"
        )


def _side_by_side(work: Callable[[int], None], items: range) -> None:
    """Do *work* for each of *items*, in several threads. Raises what was raised first, once all ended."""
    left = iter(items)  # next() of a range is one step, whoever asks
    failed: list[BaseException] = []

    def run() -> None:
        try:
            while not failed and (item := next(left, None)) is not None:
                work(item)
        except BaseException as error:  # noqa: BLE001 - raised again, below
            failed.append(error)

    count = min(len(items), len(os.sched_getaffinity(0)), _THREADS)
    others = [threading.Thread(target=run, name="sim-copy", daemon=True) for _ in range(count - 1)]
    started = start(others)
    run()
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]
