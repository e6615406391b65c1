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
from pathlib import Path
from typing import Any

from slurm_interleave.client.integrations.torch_device import Device

ALIGN = 512  # of each storage in a slab, in bytes
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of madvise(2), Linux 5.14
_PIECE = 64 << 20  # touched at once by one thread; whole huge pages
_THREADS = 8


def aligned(size: int) -> int:
    """Return *size* in whole units of `ALIGN`."""
    return -(-size // ALIGN) * ALIGN


class Slab:
    """One mapping of host memory, as a tensor of bytes. Raises `MemoryError` where it cannot be had."""

    def __init__(self, size: int, device: Device) -> None:
        import torch

        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.used = 0
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
        self.used = 0
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

    def reserve(self, size: int) -> None:
        """Make room for *size* bytes in one piece. While nothing is kept, all is one slab.

        Raises `MemoryError`; what is there stays.
        """
        if any(slab.size - slab.used >= size for slab in self._slabs):
            return
        if any(slab.used for slab in self._slabs):
            self._slabs.append(self._slab(size))
            return
        while self._slabs:
            self._slabs.pop().close()
        self._slabs = [self._slab(size)]

    def take(self, size: int) -> Any:
        """Return the next *size* bytes, as a tensor; room was made by `reserve`."""
        slab = next(slab for slab in self._slabs if slab.size - slab.used >= aligned(size))
        start, slab.used = slab.used, slab.used + aligned(size)
        return slab.bytes[start : start + size]

    def write_out(self) -> None:
        """Have what is kept on disk leave host memory. Raises `OSError` if the disk fails."""
        for slab in self._slabs:
            slab.write_out()

    def clear(self) -> None:
        """Forget what is kept; the memory stays."""
        for slab in self._slabs:
            slab.used = 0

    def close(self) -> None:
        """Give the memory back."""
        while self._slabs:
            self._slabs.pop().close()

    def _slab(self, size: int) -> Slab | DiskSlab:
        return Slab(size, self._device) if self._folder is None else DiskSlab(size, self._folder)


def _touch(address: int, size: int, cpus: set[int]) -> None:
    """Have every page now, by several threads, from the memory near *cpus*. Raises `MemoryError`."""
    pieces = list(range(0, size, _PIECE))
    failed: list[OSError] = []

    def work() -> None:
        if cpus:
            with contextlib.suppress(OSError):  # Slurm may have bound the job elsewhere
                os.sched_setaffinity(0, cpus)  # of this thread alone
        with contextlib.suppress(IndexError):
            while not failed:
                start = pieces.pop()
                _populate(address + start, min(_PIECE, size - start), failed)

    threads = [threading.Thread(target=work) for _ in range(min(_THREADS, len(pieces), os.cpu_count() or 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
