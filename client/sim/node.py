"""What the processes of one node share: the device files, and the table under its lock."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_interleave.client.sim import records
from slurm_interleave.client.sim.errors import ChecksumMismatch, NotResident, OutOfMemory, SimError
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.sim.table import (
    Buffer,
    Table,
    find_room,
    load,
    locked,
    open_shared,
    round_up,
    save,
)


class SimNode:
    """The simulated devices of one node."""

    def __init__(self, directory: Path, config: SimConfig) -> None:
        """Use the devices in *directory*, which `Arena.open` has made."""
        self.directory = directory
        self.config = config
        self._maps: dict[int, mmap.mmap] = {}
        self.spill: Path | None = None  # a folder on disk for saved state that does not fit in host memory
        self._hosts: dict[Path, tuple[int, mmap.mmap]] = {}  # inode and map of each file with saved buffers

    @property
    def use_folder(self) -> Path:
        """Lock files: who uses the buffers of a job now."""
        return self.directory / "use"

    def spill_folder(self, job: str) -> Path:
        """Return the folder on disk for what *job* has saved there. Raises `SimError` where there is none."""
        if self.spill is None:
            raise SimError(
                f"job {job}: its saved state is on disk, but [agent] spill_dir is not set any more"
            )
        return self.spill / job

    def host_file(self, job: str, *, spilled: bool = False) -> Path:
        """Return the file of a job's saved buffers: in host memory got once, kept for the job's life."""
        return (self.spill_folder(job) if spilled else self.directory / "host" / job) / "saved"

    def host_memory(self, job: str, size: int, *, spilled: bool = False) -> memoryview:
        """Return *size* bytes of host memory of *job* at least, with real memory behind them, or disk.

        Raises `SimError` where there is no more of it.
        """
        path = self.host_file(job, spilled=spilled)
        try:
            if spilled:
                path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = open_shared(path, os.O_RDWR | os.O_CREAT)
            try:
                self._grow(descriptor, size)
                return self._host_map(path, descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            where = "on disk" if spilled else "in host memory"
            raise SimError(f"{path}: {size} bytes cannot be saved {where}: {error}") from error

    def _grow(self, descriptor: int, size: int) -> None:
        had = os.fstat(descriptor).st_size
        try:
            if size > had:
                os.posix_fallocate(descriptor, had, size - had)
        except OSError:
            os.ftruncate(descriptor, had)  # what it got of a full disk is for others
            raise

    def saved_memory(self, job: str, size: int, *, spilled: bool = False) -> memoryview:
        """Return what holds *size* saved bytes of *job*. Raises `ChecksumMismatch`."""
        path = self.host_file(job, spilled=spilled)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise ChecksumMismatch(f"{path}: the saved buffers cannot be read: {error}") from error
        try:
            if (there := os.fstat(descriptor).st_size) < size:
                raise ChecksumMismatch(f"{path}: {there} bytes are there, {size} were saved")
            return self._host_map(path, descriptor)
        finally:
            os.close(descriptor)

    def write_out(self, job: str) -> None:
        """Have what was saved on disk leave host memory. Raises `SimError` if the disk fails."""
        _, mapped = self._hosts.pop(self.host_file(job, spilled=True))
        try:
            mapped.flush()
        except OSError as error:
            raise SimError(f"job {job}: its saved state cannot be written to disk: {error}") from error

    def forget_spilled(self, job: str) -> None:
        """Give the disk back that the job's saved buffers had."""
        path = self.host_file(job, spilled=True)
        self._hosts.pop(path, None)
        path.unlink(missing_ok=True)

    def forget_host_memory(self, job: str) -> None:
        """Give the host memory of *job* back, and what it has on disk."""
        self._hosts.pop(self.host_file(job), None)
        shutil.rmtree(self.host_file(job).parent, ignore_errors=True)
        if self.spill is not None:
            self._hosts.pop(self.host_file(job, spilled=True), None)
            shutil.rmtree(self.spill_folder(job), ignore_errors=True)

    def look(self) -> Table:
        """Return the table as it is now, for reading alone."""
        table = load(self.directory / "table.json")
        table.sweep()
        return table

    @contextmanager
    def transaction(self) -> Iterator[Table]:
        """Give the table under its lock, and store it if the block does not raise."""
        path = self.directory / "table.json"
        with locked(self.directory / "lock"):
            table = load(path)
            table.sweep()
            yield table
            save(path, table)

    def view(self, buffer: Buffer) -> memoryview:
        """Return the bytes of *buffer* on its device."""
        return memoryview(self._map(buffer.device))[buffer.offset : buffer.offset + buffer.size]

    def check_index(self, device: int) -> None:
        """Raise `SimError` if there is no such device."""
        if not 0 <= device < self.config.devices:
            raise SimError(f"{self.directory}: no device {device}; there are {self.config.devices}, from 0")

    def check_resident(self, table: Table, job: str, buffers: Iterable[Buffer]) -> None:
        """Raise `NotResident` if the job's context moves now or one of *buffers* is in host memory."""
        if job in table.moves:
            raise NotResident(
                f"job {job}: a {table.moves[job].verb} of its device state is under way; "
                "acquire the devices before you use them"
            )
        if any(buffer.saved for buffer in buffers):
            raise NotResident(
                f"job {job}: its device state is in host memory; acquire the devices before you use them"
            )

    def set_aside(self, table: Table, job: str, device: int, size: int) -> int:
        """Return an offset for *size* bytes, with real memory behind it. Raises `OutOfMemory`."""
        size = round_up(size)
        try:
            offset = find_room(table.taken(device), size, self.config.memory_bytes, device)
        except OutOfMemory as error:
            others = {other: held for other, held in table.residents(device).items() if other != job}
            if not others:
                raise
            held = ", ".join(f"job {other} holds {bytes_} bytes" for other, bytes_ in sorted(others.items()))
            raise OutOfMemory(f"{error}; {held}") from None
        self._back_with_memory(table, device, offset + size)
        return offset

    def _back_with_memory(self, table: Table, device: int, end: int) -> None:
        """Take pages up to *end* now, and keep them: a write to a hole on a full tmpfs would be a SIGBUS."""
        begin = table.backed.get(device, 0)
        descriptor = open_shared(self._file(device), os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_blocks * 512 < begin:
                begin = 0  # another file by now
            if end > begin:
                os.posix_fallocate(descriptor, begin, end - begin)
                table.backed[device] = end
        except OSError as error:
            raise OutOfMemory(
                f"device {device}: {self.directory}: no host memory behind it: {error}"
            ) from error
        finally:
            os.close(descriptor)

    def _host_map(self, path: Path, descriptor: int) -> memoryview:
        about = os.fstat(descriptor)
        inode, mapped = self._hosts.get(path, (0, None))
        if mapped is None or inode != about.st_ino or len(mapped) < about.st_size:
            mapped = mmap.mmap(descriptor, about.st_size)
            self._hosts[path] = about.st_ino, mapped
        return memoryview(mapped)

    def _file(self, device: int) -> Path:
        return self.directory / f"device-{device}"

    def _map(self, device: int) -> mmap.mmap:
        if device not in self._maps:
            descriptor = open_shared(self._file(device), os.O_RDWR | os.O_CREAT)
            try:
                os.ftruncate(descriptor, self.config.memory_bytes)
                self._maps[device] = mmap.mmap(descriptor, self.config.memory_bytes)
            finally:
                os.close(descriptor)
        return self._maps[device]

    def note_out_of_memory(self, table: Table, job: str, device: int, error: OutOfMemory) -> None:
        """Record a violation if other jobs are resident where *job* found no room."""
        others = set(table.residents(device)) - {job}
        if others:
            records.note_violation(self.directory, "over-capacity", device, {job, *others}, str(error))
