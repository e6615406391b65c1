"""The devices of one node as files: allocations, snapshot and restore. Standard library alone.

Each device is a file of fixed size on tmpfs, mapped by every process that uses it. All processes share one
table (see `table.py`). A snapshot copies a job's buffers to host files and frees the device; a restore brings
them back, wherever there is room. The bytes of each buffer are checksummed on the way out and back.
All processes are in one PID namespace; a buffer lives as long as the process that made it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import records, transfer
from slurm_interleave.client.sim.errors import NotResident, OutOfMemory, SimError, StillWorking
from slurm_interleave.client.sim.processes import this_process
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.sim.table import (
    Buffer,
    Move,
    Table,
    find_room,
    load,
    locked,
    open_shared,
    round_up,
    save,
)

DEFAULT_DEADLINE_S = 60.0
_SAVE, _LOAD = "snapshot", "restore"


@dataclass(frozen=True)
class JobMemory:
    """What a job has on this node: the state of its context, and its bytes on devices and in host memory."""

    context: Context
    resident_bytes: int
    saved_bytes: int


class Arena:
    """All simulated devices of one node. Each method is one step that other processes see whole."""

    def __init__(self, directory: Path, config: SimConfig) -> None:
        self.directory = directory
        self.config = config
        self._maps: dict[int, mmap.mmap] = {}

    @classmethod
    def open(cls, directory: Path, config: SimConfig | None = None) -> Arena:
        """Return the devices in *directory*, made if they are missing.

        *config* is what the node's agent wants; a job passes None and takes what is there. Raises `SimError`
        if the sizes differ from those of devices in use.
        """
        records.make_folder(directory)
        records.make_folder(directory / "host")
        records.make_folder(directory / "use")
        with locked(directory / "lock"):
            table = load(directory / "table.json")
            table.sweep()
            return cls(directory, records.settle(directory, config, in_use=bool(table.buffers)))

    def allocate(self, job: str, device: int, size: int) -> int:
        """Set *size* bytes aside and return the new buffer's number.

        Raises `OutOfMemory`; where another job's memory is in the way, that is a violation too. Raises
        `NotResident` while the job's other buffers are not on the device.
        """
        self._check_index(device)
        with self._transaction() as table:
            self._check_resident(table, job, table.of_job(job))
            offset = self._find_room(table, job, device, size)
            number = table.new_id()
            table.buffers[number] = Buffer(job, device, offset, round_up(size), this_process())
        return number

    def free(self, number: int) -> None:
        """Free a buffer, wherever it is. One that is gone already is fine."""
        with self._transaction() as table:
            buffer = table.buffers.get(number)
            if buffer is None:
                return
            self._check_not_moving(table, buffer.job)
            del table.buffers[number]
            self._release({number: buffer})

    @contextmanager
    def using(self, job: str, numbers: list[int]) -> Iterator[dict[int, tuple[int, memoryview]]]:
        """Give device and bytes of each buffer; no snapshot begins before the block ends.

        Raises `NotResident` if one of them is not on its device.
        """
        with locked(self.directory / "use" / job, fcntl.LOCK_SH):
            table = load(self.directory / "table.json")
            buffers = {number: table.buffers[number] for number in numbers if number in table.buffers}
            if missing := set(numbers) - set(buffers):
                raise NotResident(f"job {job}: buffer {min(missing)} was freed, or its job has ended")
            self._check_resident(table, job, buffers)
            yield {number: (b.device, self.view(b)) for number, b in buffers.items()}

    def view(self, buffer: Buffer) -> memoryview:
        """Return the bytes of *buffer* on its device."""
        return memoryview(self._map(buffer.device))[buffer.offset : buffer.offset + buffer.size]

    def memory_of(self, job: str) -> JobMemory:
        """Say what *job* has on this node now."""
        with self._transaction() as table:
            return _memory(table, job)

    def jobs(self) -> dict[str, JobMemory]:
        """Return the same for all jobs."""
        with self._transaction() as table:
            return {job: _memory(table, job) for job in {b.job for b in table.buffers.values()}}

    def used_bytes(self, device: int) -> int:
        """Return the bytes of *device* that are taken."""
        with self._transaction() as table:
            return sum(size for _, size in table.taken(device))

    def snapshot(self, job: str, deadline_s: float = DEFAULT_DEADLINE_S) -> int:
        """Copy the job's buffers to host memory, free the device; return the bytes moved (0: none).

        Raises `StillWorking` and `SimError`, then the buffers are where they were.
        """
        deadline = time.monotonic() + deadline_s
        with self._moving(job, _SAVE, deadline) as buffers:
            going = {number: b for number, b in buffers.items() if not b.saved}
            pace = transfer.Pace(self._speed("snapshot_gib_s"), deadline)
            folder = records.make_folder(self.directory / "host" / job)
            sums = {n: transfer.save(self.view(b), folder / str(n), pace) for n, b in going.items()}
            with self._transaction() as table:
                for number, crc in sums.items():
                    table.buffers[number].saved, table.buffers[number].crc = True, crc
            self._release(going)
        return sum(b.size for b in going.values())

    def restore(
        self, job: str, devices: Mapping[int, int] | None = None, deadline_s: float = DEFAULT_DEADLINE_S
    ) -> int:
        """Bring the job's buffers back and return the bytes moved (0: none were saved).

        *devices* maps old indices to new ones. Raises `OutOfMemory` before anything moves, and
        `ChecksumMismatch`; then the buffers stay in host memory.
        """
        deadline = time.monotonic() + deadline_s
        with self._moving(job, _LOAD, deadline) as buffers:
            coming = {number: b for number, b in buffers.items() if b.saved}
            places = self._set_room_aside(job, coming, devices or {})
            pace = transfer.Pace(self._speed("restore_gib_s"), deadline)
            folder = self.directory / "host" / job
            try:
                for number, target in places.items():
                    transfer.load(folder / str(number), self.view(target), target.crc, pace)
            except BaseException:
                self._release(places)
                raise
            with self._transaction() as table:
                table.buffers.update(places)
                table.moves.pop(job, None)
            for number in places:
                (folder / str(number)).unlink(missing_ok=True)
        return sum(b.size for b in places.values())

    def discard(self, job: str) -> None:
        """Free all that *job* has, on devices and in host memory. Twice, or for an unknown job: fine."""
        with self._transaction() as table:
            self._check_not_moving(table, job)
            buffers = table.of_job(job)
            for number in buffers:
                del table.buffers[number]
            self._release({n: b for n, b in buffers.items() if not b.saved})
        records.remove_folder(self.directory / "host" / job)
        (self.directory / "use" / job).unlink(missing_ok=True)

    def recover(self) -> None:
        """Remove host files that no buffer owns: what a killed agent left in the middle of its work."""
        with self._transaction() as table:
            kept = {
                self.directory / "host" / b.job / str(n)
                for n, b in table.buffers.items()
                if b.saved or b.job in table.moves
            }
            for path in (self.directory / "host").glob("*/*"):
                if path not in kept:
                    path.unlink(missing_ok=True)

    @contextmanager
    def working(self, job: str, device: int, name: str) -> Iterator[None]:
        """Note that *job* works on *device* during the block; another job at work there is a violation."""
        self._check_index(device)
        with self._transaction() as table:
            records.note_work(self.directory, table, job, device)
            number = table.new_id()
            table.work[number] = records.Work(job, device, name, this_process())
        try:
            yield
        finally:
            with self._transaction() as table:
                table.work.pop(number, None)

    def violations(self) -> list[dict[str, Any]]:
        """Return all violations so far, oldest first."""
        return records.read_lines(self.directory / records.VIOLATIONS)

    @contextmanager
    def _transaction(self) -> Iterator[Table]:
        """Give the table, swept, and write it back if the block does not raise."""
        path = self.directory / "table.json"
        with locked(self.directory / "lock"):
            table = load(path)
            self._release(table.sweep())
            yield table
            save(path, table)

    @contextmanager
    def _moving(self, job: str, verb: str, deadline: float) -> Iterator[dict[int, Buffer]]:
        """Give the job's buffers while nobody else uses or moves them."""
        with self._transaction() as table:
            self._check_not_moving(table, job)
            table.moves[job] = Move(verb, this_process())
        try:
            with self._alone(job, deadline):
                with self._transaction() as table:
                    buffers = table.of_job(job)
                yield buffers
        finally:
            with self._transaction() as table:
                table.moves.pop(job, None)

    @contextmanager
    def _alone(self, job: str, deadline: float) -> Iterator[None]:
        """Hold the job's use lock alone: its work on the device has ended and no new work begins."""
        descriptor = open_shared(self.directory / "use" / job, os.O_RDWR | os.O_CREAT)
        try:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > deadline:
                    raise StillWorking(f"job {job} still works on its device; nothing was moved")
                time.sleep(0.002)
            yield
        finally:
            os.close(descriptor)
