"""Host memory that saved state goes to: mapped, touched and pinned once, then used again at every turn.

A first save costs far more for getting and pinning pages than for the copy, and torch's own pinned allocator
rounds each block up to a power of two.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.threads import start
from slurm_interleave.client.integrations.torch_device import Device

ALIGN = 512  # of each storage in a slab, in bytes
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of madvise(2), Linux 5.14
_PIECE = 64 << 20  # touched at once by one thread; whole huge pages
_THREADS = 8


def aligned(size: int) -> int:
    """Return *size* in whole units of `ALIGN`."""
    return -(-size // ALIGN) * ALIGN


@dataclass(eq=False)
class Stretch:
    """A part of a slab for what leaves together, from byte *start* to *end*; free again once all is back."""

    slab: Slab | DiskSlab
    start: int
    end: int
    pieces: int = 0
    taken: int = 0

    def take(self, size: int) -> Any:
        """Return the next *size* bytes, as a tensor."""
        start = self.start + self.taken
        self.taken += aligned(size)
        self.pieces += 1
        return self.slab.bytes[start : start + size]

    def give_back(self) -> None:
        """Need no more what one `take` returned."""
        self.pieces -= 1
        if not self.pieces:
            self.slab.stretches.remove(self)


class Slab:
    """One mapping of host memory, as a tensor of bytes. Raises `MemoryError` where it cannot be had."""

    def __init__(self, size: int, device: Device) -> None:
        import torch

        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.stretches: list[Stretch] = []  # in the order of where they are
        self._device = device
        try:
            self._map = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"{self.size} bytes of host memory cannot be had: {error}") from error
        with contextlib.suppress(OSError):  # a kernel without huge pages
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        _touch(self.address, self.size, device.cpus_near())
        self.pinned = device.register(self.address, self.size)
        self.bytes: Any = torch.frombuffer(self._map, dtype=torch.uint8)

    def write_out(self) -> None:
        """Do nothing: it is where it belongs."""

    def close(self) -> None:
        """Give the memory back, once nothing refers to it."""
        if self.pinned:
            self._device.unregister(self.address)
            self.pinned = False
        del self.bytes


class DiskSlab:
    """The same on disk: a file without a name, which ends with its process. Raises `MemoryError`."""

    pinned = False

    def __init__(self, size: int, folder: Path) -> None:
        import torch

        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.stretches: list[Stretch] = []  # in the order of where they are
        with contextlib.ExitStack() as stack:
            try:
                self._file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
                os.posix_fallocate(self._file.fileno(), 0, self.size)
                self._map = mmap.mmap(self._file.fileno(), self.size)
            except OSError as error:
                raise MemoryError(f"{self.size} bytes cannot be had on disk in {folder}: {error}") from error
            stack.pop_all()
        self.bytes: Any = torch.frombuffer(self._map, dtype=torch.uint8)

    def write_out(self) -> None:
        """Have what was copied leave host memory. Raises `OSError` if the disk fails."""
        self._map.flush()
        self._map.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Give the disk back, once nothing refers to it."""
        self._file.close()
        del self.bytes


class Arena:
    """Slabs that grow to what was needed most, and never shrink."""

    def __init__(self, device: Device, folder: Path | None = None) -> None:
        """*folder*: on the disk there instead of in host memory."""
        self._device = device
        self._folder = folder
        self._slabs: list[Slab | DiskSlab] = []

    @property
    def size(self) -> int:
        """Bytes that are set aside."""
        return sum(slab.size for slab in self._slabs)

    @property
    def pinned(self) -> bool:
        """Whether all of it is pinned."""
        return all(slab.pinned for slab in self._slabs)

    @property
    def in_use(self) -> bool:
        """Whether anything is kept there."""
        return any(slab.stretches for slab in self._slabs)

    def reserve(self, size: int) -> Stretch:
        """Make room for *size* bytes in one piece. While nothing is kept, all is one slab.

        Raises `MemoryError`; what is kept stays.
        """
        for slab in self._slabs:
            if (start := _hole(slab, size)) is not None:
                return _stretch(slab, start, size)
        for slab in self._slabs:
            if not slab.stretches:
                slab.close()
        self._slabs = [slab for slab in self._slabs if slab.stretches]
        self._slabs.append(self._slab(size))
        return _stretch(self._slabs[-1], 0, size)

    def write_out(self) -> None:
        """Have what is kept on disk leave host memory. Raises `OSError` if the disk fails."""
        for slab in self._slabs:
            slab.write_out()

    def clear(self) -> None:
        """Forget what is kept; the memory stays."""
        for slab in self._slabs:
            slab.stretches.clear()

    def close(self) -> None:
        """Give the memory back."""
        while self._slabs:
            self._slabs.pop().close()

    def _slab(self, size: int) -> Slab | DiskSlab:
        return Slab(size, self._device) if self._folder is None else DiskSlab(size, self._folder)


def _hole(slab: Slab | DiskSlab, size: int) -> int | None:
    """Return where the first *size* bytes are free."""
    start = 0
    for stretch in slab.stretches:
        if stretch.start - start >= size:
            break
        start = stretch.end
    return start if slab.size - start >= size else None


def _stretch(slab: Slab | DiskSlab, start: int, size: int) -> Stretch:
    stretch = Stretch(slab, start, start + size)
    slab.stretches.append(stretch)
    slab.stretches.sort(key=lambda each: each.start)
    return stretch


def _touch(address: int, size: int, cpus: set[int]) -> None:
    """Have every page now, by several threads, from the memory near *cpus*. Raises `MemoryError`."""
    pieces = list(range(0, size, _PIECE))
    failed: list[OSError] = []

    def take() -> None:
        with contextlib.suppress(IndexError):
            while not failed:
                first = pieces.pop()
                _populate(address + first, min(_PIECE, size - first), failed)

    def work() -> None:
        if cpus:
            with contextlib.suppress(OSError):  # Slurm may have bound the job elsewhere
                os.sched_setaffinity(0, cpus)  # of this thread alone
        take()

    threads = [threading.Thread(target=work) for _ in range(min(_THREADS, len(pieces), os.cpu_count() or 1))]
    started = start(threads)
    for thread in started:
        thread.join()
    if not started:
        take()
    if failed:
        raise MemoryError(f"{size} bytes of host memory cannot be had: {failed[0]}")


def _populate(address: int, size: int, failed: list[OSError]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _POPULATE_WRITE) == 0:
        return
    number = ctypes.get_errno()
    if number in (12, 14):  # ENOMEM, EFAULT: there is no memory
        failed.append(OSError(number, os.strerror(number)))
    else:  # an older kernel
        ctypes.memset(address, 0, size)
