"""The devices of one node as files: allocations, snapshot and restore. Standard library alone.

Each device is a file of fixed size on tmpfs, mapped by every process that uses it. All processes share one
table (see `table.py`). A snapshot copies a job's buffers to host memory and frees the device; a restore
brings them back, wherever there is room. The bytes of each buffer are checksummed on the way out and back.
Memory behind devices and behind saved state is got once and kept, since getting it costs more than a copy.
All processes are in one PID namespace; a buffer lives as long as the process that made it.
"""

from __future__ import annotations

import fcntl
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import moves, records
from slurm_interleave.client.sim.errors import NotResident, OutOfMemory, SimError
from slurm_interleave.client.sim.node import SimNode
from slurm_interleave.client.sim.processes import this_process
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.sim.table import Buffer, Table, Work, load, locked, round_up

DEADLINE_S = 60.0


@dataclass(frozen=True)
class JobMemory:
    """What a job has on this node: the state of its context, and its bytes on devices and in host memory."""

    context: Context
    resident_bytes: int
    saved_bytes: int
    spilled: bool = False  # some of them on disk


class Arena(SimNode):
    """All simulated devices of one node. Each method is one step that other processes see whole."""

    @classmethod
    def open(cls, directory: Path, config: SimConfig | None = None) -> Arena:
        """Return the devices in *directory*, made if they are missing.

        *config* is what the node's agent wants; a job passes None and takes what is there, or the defaults
        and INTERLEAVE_SIM_* of its environment. Raises `SimError` if devices in use have another size.
        """
        for folder in (directory, directory / "host", directory / "use"):
            records.make_folder(folder)
        with locked(directory / "lock"):
            table = load(directory / "table.json")
            table.sweep()
            return cls(directory, records.settle(directory, config, in_use=bool(table.buffers)))

    def allocate(self, job: str, device: int, size: int) -> int:
        """Set *size* bytes aside and return the new buffer's number.

        Raises `OutOfMemory`; where another job's memory is in the way, that is a violation too. Raises
        `NotResident` while the job's other buffers are not on the device.
        """
        self.check_index(device)
        with self.transaction() as table:
            self.check_resident(table, job, table.of_job(job).values())
            try:
                offset = self.set_aside(table, job, device, size)
            except OutOfMemory as error:
                self.note_out_of_memory(table, job, device, error)
                raise
            number = table.new_id()
            table.buffers[number] = Buffer(job, device, offset, round_up(size), this_process())
        return number

    def free(self, number: int) -> None:
        """Free a buffer, wherever it is; one that is gone already is fine. Raises `NotResident` in a move."""
        with self.transaction() as table:
            buffer = table.buffers.get(number)
            if buffer is None:
                return
            self.check_resident(table, buffer.job, [])
            table.drop(number)

    @contextmanager
    def using(self, job: str, numbers: Sequence[int]) -> Iterator[dict[int, tuple[int, memoryview]]]:
        """Give (device, bytes) of each buffer; no snapshot begins before the block ends.

        Raises `NotResident` if one of them is not on its device.
        """
        with locked(self.use_folder / job, fcntl.LOCK_SH):
            table = load(self.directory / "table.json")
            buffers = {number: table.buffers[number] for number in numbers if number in table.buffers}
            if missing := set(numbers) - set(buffers):
                raise NotResident(f"job {job}: buffer {min(missing)} was freed, or its job has ended")
            self.check_resident(table, job, buffers.values())
            yield {number: (buffer.device, self.view(buffer)) for number, buffer in buffers.items()}

    @contextmanager
    def working(self, job: str, device: int, name: str) -> Iterator[None]:
        """Note that *job* works on *device* during the block; another job at work there is a violation."""
        self.check_index(device)
        with self.transaction() as table:
            others = {work.job for work in table.work.values() if work.device == device and work.job != job}
            if others:
                text = f"job {job} began {name} while job {', '.join(sorted(others))} was at work"
                records.note_violation(self.directory, "two-at-work", device, {job, *others}, text)
            number = table.new_id()
            table.work[number] = Work(job, device, name, this_process())
        try:
            yield
        finally:
            with self.transaction() as table:
                table.work.pop(number, None)

    def snapshot(
        self,
        job: str,
        deadline_s: float = DEADLINE_S,
        stop: threading.Event | None = None,
        *,
        spilled: bool = False,
    ) -> int:
        """Copy the job's buffers to host memory, free the device; return the bytes moved (0: none).

        *spilled*: to the folder `spill` on disk instead, where a restore frees them.

        Waits for the job's work to end. Raises `StillWorking` after *deadline_s*, `SimError` where host
        memory is full or *stop* is set; then the buffers are where they were.
        """
        return moves.snapshot(self, job, time.monotonic() + deadline_s, stop, spilled=spilled)

    def restore(
        self,
        job: str,
        devices: Mapping[int, int] | None = None,
        deadline_s: float = DEADLINE_S,
        stop: threading.Event | None = None,
    ) -> int:
        """Bring the job's buffers back and return the bytes moved (0: none were saved).

        *devices* maps old indices to new ones. Raises `OutOfMemory` before anything moves, and
        `ChecksumMismatch`, `StillWorking`, `SimError`; then the buffers are in host memory still.
        """
        return moves.restore(self, job, devices or {}, time.monotonic() + deadline_s, stop)

    def discard(self, job: str, wait_s: float | None = None) -> None:
        """Free all that *job* has, on devices and in host memory. Twice, or for an unknown job: fine.

        With *wait_s* its work may end first, for so long. Raises `SimError` during a move, `StillWorking`.
        """
        if wait_s is not None:
            moves.discard(self, job, time.monotonic() + wait_s)
        with self.transaction() as table:
            if job in table.moves:
                raise SimError(f"job {job}: a {table.moves[job].verb} is under way; nothing was discarded")
            for number in table.of_job(job):
                table.drop(number)
        self.forget_host_memory(job)
        shutil.rmtree(self.directory / "regions" / job, ignore_errors=True)
        (self.use_folder / job).unlink(missing_ok=True)

    def recover(self) -> None:
        """Give back the host memory, and the disk, of jobs that have no buffers any more."""
        with self.transaction() as table:
            alive = {buffer.job for buffer in table.buffers.values()} | set(table.moves)
            spilled = self.spill.iterdir() if self.spill is not None else ()
            kept = (self.directory / "host").iterdir(), (self.directory / "regions").glob("*"), spilled
            for path in chain(*kept):
                if path.name not in alive:
                    shutil.rmtree(path, ignore_errors=True)
            for job in alive if self.spill is not None else ():
                if not any(buffer.spilled for buffer in table.of_job(job).values()):
                    self.forget_spilled(job)

    def memory_of(self, job: str) -> JobMemory:
        """Say what *job* has on this node now."""
        return _memory(self.look(), job)

    def jobs(self) -> dict[str, JobMemory]:
        """Return the same for all jobs that have anything."""
        table = self.look()
        return {job: _memory(table, job) for job in {buffer.job for buffer in table.buffers.values()}}

    def users(self) -> tuple[list[Work], list[Buffer]]:
        """Return what runs on the devices now, and the buffers that are on them."""
        table = self.look()
        return list(table.work.values()), [buffer for buffer in table.buffers.values() if not buffer.saved]

    def used_bytes(self, device: int) -> int:
        """Return the bytes of *device* that are taken."""
        return sum(size for _, size in self.look().taken(device))

    def violations(self) -> list[dict[str, Any]]:
        """Return all violations so far, oldest first."""
        return records.read_lines(self.directory / records.VIOLATIONS)


def _memory(table: Table, job: str) -> JobMemory:
    buffers = table.of_job(job).values()
    saved = sum(buffer.size for buffer in buffers if buffer.saved)
    resident = sum(buffer.size for buffer in buffers if not buffer.saved)
    move = table.moves.get(job)
    if move is not None:
        context = Context.SAVING if move.verb == "snapshot" else Context.RESTORING
    elif saved:
        context = Context.SAVED
    else:
        context = Context.RESIDENT if resident else Context.NONE
    return JobMemory(context, resident, saved, any(buffer.spilled for buffer in buffers))
