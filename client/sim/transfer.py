"""Moves the bytes of one buffer between a device and a host file, at a set speed, with a checksum."""

from __future__ import annotations

import os
import threading
import time
import zlib
from pathlib import Path

from slurm_interleave.client.sim.errors import ChecksumMismatch, SimError, StillWorking
from slurm_interleave.client.sim.table import open_shared

_CHUNK = 4 << 20


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


def save(view: memoryview, device: int, path: Path, pace: Pace) -> int:
    """Copy *view* into *path* and return its checksum. Raises `SimError`, also where host memory is full."""
    crc = 0
    try:
        with os.fdopen(open_shared(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb", buffering=0) as file:
            for start in range(0, len(view), _CHUNK):
                chunk = view[start : start + _CHUNK]
                _write_all(file.fileno(), chunk)
                crc = zlib.crc32(chunk, crc)
                pace.moved(device, len(chunk))
    except OSError as error:
        raise SimError(f"{path}: {len(view)} bytes cannot be saved in host memory: {error}") from error
    return crc


def load(path: Path, view: memoryview, device: int, crc: int, pace: Pace) -> None:
    """Copy *path* into *view*. Raises `ChecksumMismatch` if the bytes are not those of `save`, `SimError`."""
    seen = 0
    try:
        with path.open("rb", buffering=0) as file:
            for start in range(0, len(view), _CHUNK):
                chunk = view[start : start + _CHUNK]
                if file.readinto(chunk) != len(chunk):
                    raise ChecksumMismatch(f"{path}: the saved buffer is shorter than {len(view)} bytes")
                seen = zlib.crc32(chunk, seen)
                pace.moved(device, len(chunk))
    except OSError as error:
        raise ChecksumMismatch(f"{path}: the saved buffer cannot be read: {error}") from error
    if seen != crc:
        raise ChecksumMismatch(f"{path}: the saved buffer has checksum {seen:#x}, it left with {crc:#x}")


def checksum(path: Path) -> int:
    """Return the checksum of a saved file. Raises `ChecksumMismatch` if it cannot be read."""
    seen = 0
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                seen = zlib.crc32(chunk, seen)
    except OSError as error:
        raise ChecksumMismatch(f"{path}: the saved buffer cannot be read: {error}") from error
    return seen


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
