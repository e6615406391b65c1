"""The allocation table of one node's simulated devices: what lies where, and who does what.

It is one JSON file, replaced as a whole by a rename under a lock. A process killed at any instant leaves
the table of before or of after its change, and the kernel drops its lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slurm_interleave.client.sim.errors import OutOfMemory
from slurm_interleave.client.sim.processes import Process, is_alive

PAGE = 4096


@dataclass
class Buffer:
    """One allocation. While `saved`, device and offset say where it was; its bytes are in host memory."""

    job: str
    device: int
    offset: int
    size: int
    owner: Process
    saved: bool = False
    place: int = 0  # of the saved bytes in the job's host memory
    checksum: str = ""
    spilled: bool = False  # its saved bytes are on the disk for what does not fit in host memory


@dataclass
class Move:
    """A snapshot or restore under way; `room` is what a restore has set aside: (device, offset, size)."""

    verb: str
    mover: Process
    room: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class Work:
    """A kernel that runs now."""

    job: str
    device: int
    name: str
    worker: Process


@dataclass
class Table:
    """Everything that the processes of one node share."""

    next_id: int = 1
    buffers: dict[int, Buffer] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)
    work: dict[int, Work] = field(default_factory=dict)
    backed: dict[int, int] = field(default_factory=dict)  # bytes of each device that have memory behind them

    def of_job(self, job: str) -> dict[int, Buffer]:
        """Return the buffers of *job*, resident and saved."""
        return {number: buffer for number, buffer in self.buffers.items() if buffer.job == job}

    def new_id(self) -> int:
        """Return a number that was never used before."""
        self.next_id += 1
        return self.next_id - 1

    def taken(self, device: int) -> list[tuple[int, int]]:
        """Return the taken ranges of *device* as (offset, size), in order."""
        ranges = [(b.offset, b.size) for b in self.buffers.values() if b.device == device and not b.saved]
        for move in self.moves.values():
            ranges += [(offset, size) for where, offset, size in move.room if where == device]
        return sorted(ranges)

    def residents(self, device: int) -> dict[str, int]:
        """Return the bytes that each job has on *device* now."""
        held: dict[str, int] = {}
        for buffer in self.buffers.values():
            if buffer.device == device and not buffer.saved:
                held[buffer.job] = held.get(buffer.job, 0) + buffer.size
        return held

    def drop(self, number: int) -> None:
        """Remove a buffer."""
        del self.buffers[number]

    def end_move(self, job: str) -> None:
        """Forget a move; the room that it had set aside, if it still has any, is free again."""
        self.moves.pop(job, None)

    def sweep(self) -> None:
        """Forget what dead processes left, as a driver does."""
        alive: dict[Process, bool] = {}

        def dead(process: Process) -> bool:
            if process not in alive:
                alive[process] = is_alive(process)
            return not alive[process]

        for key in [key for key, work in self.work.items() if dead(work.worker)]:
            del self.work[key]
        for job in [job for job, move in self.moves.items() if dead(move.mover)]:
            self.end_move(job)
        for number in [n for n, b in self.buffers.items() if b.job not in self.moves and dead(b.owner)]:
            self.drop(number)


def find_room(taken: list[tuple[int, int]], size: int, capacity: int, device: int) -> int:
    """Return the lowest offset where *size* bytes are free. Raises `OutOfMemory` with the numbers."""
    start, largest = 0, 0
    for offset, length in [*taken, (capacity, 0)]:
        if offset - start >= size:
            return start
        largest = max(largest, offset - start)
        start = offset + length
    used = sum(length for _, length in taken)
    raise OutOfMemory(
        f"device {device}: out of memory: {size} bytes asked for, {capacity - used} of {capacity} free, "
        f"{largest} of them in one piece"
    )


def round_up(size: int) -> int:
    """Return *size* as whole pages: the granularity of an allocation."""
    return max(PAGE, -(-size // PAGE) * PAGE)


@contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock file *path*; between threads of one process too, since each opens it anew."""
    descriptor = open_shared(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def open_shared(path: Path, flags: int) -> int:
    """Open *path*, made if need be for every user: jobs of several users share one node's devices."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, 0o666)
    return descriptor


def load(path: Path) -> Table:
    """Return the table in *path*; an empty one if there is none yet."""
    try:
        raw = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Table()
    return Table(
        next_id=raw["next_id"],
        buffers={
            int(n): Buffer(**{**item, "owner": Process(*item["owner"])}) for n, item in raw["buffers"].items()
        },
        moves={
            job: Move(m["verb"], Process(*m["mover"]), [(d, o, s) for d, o, s in m["room"]])
            for job, m in raw["moves"].items()
        },
        backed={int(device): size for device, size in raw.get("backed", {}).items()},
        work={int(n): Work(**{**w, "worker": Process(*w["worker"])}) for n, w in raw["work"].items()},
    )


def save(path: Path, table: Table) -> None:
    """Replace *path* by *table*, at once or not at all."""
    fresh = path.with_suffix(".new")
    descriptor = open_shared(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "w") as file:
        json.dump(table, file, default=vars)
    fresh.replace(path)
