"""Device memory of processes in files of ours: custom storage of CUDA 13.4 (driver 615). Only helpers copy.

The driver maps a process's memory, one extent for each device, and keeps it so until the operation is
completed; there is no way back in between. So all that can fail without the driver comes first: contexts, and
room in the files. From cuda.h (Checkpointing) and the driver's reference.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from slurm_interleave.node_agent.backends.cuda.table import NOT_SUPPORTED, OUT_OF_MEMORY

SINCE = 13040
COMPLETE = "cuCheckpointOperationComplete"
_INVALID_VALUE = 1
_PORTABLE = 1  # CU_MEMHOSTREGISTER_PORTABLE: pinned for all devices


class Extent(ctypes.Structure):
    """CUcheckpointCustomStoragePerDeviceData."""

    _fields_ = (("address", ctypes.c_uint64), ("size", ctypes.c_size_t), ("stream", ctypes.c_void_p))


class Info(ctypes.Structure):
    """CUcheckpointCustomStorageInfo."""

    _fields_ = (
        ("handle", ctypes.c_void_p),
        ("extents", ctypes.POINTER(Extent)),
        ("count", ctypes.c_uint),
    )


class CheckpointArgs(ctypes.Structure):
    """CUcheckpointCheckpointArgs since 13.4."""

    _fields_ = (("storage", ctypes.POINTER(ctypes.POINTER(Info))), ("reserved", ctypes.c_char * 56))


class Store:
    """The files of one process: one for each device, to be used again, and a seal while they are whole."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._seal = self._folder / "seal.json"

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by device of what is saved here; empty: nothing."""
        try:
            found: dict[str, int] = json.loads(self._seal.read_text())
        except FileNotFoundError:
            return {}
        return found

    def prepare(self, sizes: Mapping[str, int]) -> None:
        """Have room for *sizes*; what was here counts no more. Raises `OSError`."""
        self.unseal()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for device, size in sizes.items():
            self.mapped(device, size).close()

    def mapped(self, device: str, size: int) -> mmap.mmap:
        """Return the file of *device*, *size* bytes that are sure to be there. Raises `OSError`."""
        descriptor = os.open(self._folder / device, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if size:
                os.posix_fallocate(descriptor, 0, size)
            return mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def seal(self, sizes: Mapping[str, int]) -> None:
        """All bytes are here; what lies behind them is given back. Raises `OSError`."""
        for device, size in sizes.items():
            os.truncate(self._folder / device, size)
        fresh = self._seal.with_suffix(".new")
        fresh.write_text(json.dumps(sizes))
        fresh.replace(self._seal)

    def unseal(self) -> None:
        """They count no more."""
        self._seal.unlink(missing_ok=True)


class Copier:
    """Checkpoint and restore of a process, by copies to and from its store."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def checkpoint(self, pid: int, store: Store, sizes: Mapping[str, int]) -> int:
        """Save a locked process of *sizes* bytes by device, at most. Raises `OSError` before it begins."""
        store.prepare(sizes)
        slot = ctypes.POINTER(Info)()
        arguments = CheckpointArgs(ctypes.pointer(slot))
        with self._contexts(sizes):
            code: int = self._library.cuCheckpointProcessCheckpoint(pid, ctypes.byref(arguments))
            return code or self._copied(slot.contents, store, self._library.cuMemcpyDtoHAsync_v2, store.seal)

    def restore(self, pid: int, store: Store, arguments: Any) -> int:
        """Bring it back; *arguments* is a `RestoreArgs` without pairs. Raises `OSError` before it begins."""
        if arguments.count:
            return NOT_SUPPORTED
        sizes, slot = store.sizes, ctypes.POINTER(Info)()
        arguments.storage = ctypes.pointer(slot)

        def whole(came: Mapping[str, int]) -> None:
            if came != sizes:
                raise ValueError(f"the driver wants {came} bytes, and {sizes} are saved")

        with self._contexts(sizes):
            code: int = self._library.cuCheckpointProcessRestore(pid, ctypes.byref(arguments))
            code = code or self._copied(slot.contents, store, self._library.cuMemcpyHtoDAsync_v2, whole)
        if code == 0:
            store.unseal()
        return code

    def _copied(self, info: Info, store: Store, copy: Any, check: Callable[[Mapping[str, int]], None]) -> int:
        """Copy all extents at once, check, and complete the operation; a code but 0: it stays half done."""
        out = copy is self._library.cuMemcpyDtoHAsync_v2
        try:
            extents = {self._device_of(info.extents[i]): info.extents[i] for i in range(info.count)}
            with contextlib.ExitStack() as stack:
                for device, extent in extents.items():
                    host = stack.enter_context(self._pinned(store.mapped(device, extent.size)))
                    there, size = ctypes.c_uint64(extent.address), ctypes.c_size_t(extent.size)
                    ends = (host, there) if out else (there, host)
                    if code := copy(*ends, size, ctypes.c_void_p(extent.stream)):
                        return int(code)
                for extent in extents.values():
                    if code := self._library.cuStreamSynchronize(ctypes.c_void_p(extent.stream)):
                        return int(code)
            check({device: extent.size for device, extent in extents.items()})
        except OSError:
            return OUT_OF_MEMORY
        except ValueError:
            return _INVALID_VALUE
        return int(self._library.cuCheckpointOperationComplete(ctypes.c_void_p(info.handle)))

    @contextlib.contextmanager
    def _pinned(self, view: mmap.mmap) -> Iterator[ctypes.c_void_p]:
        """Pin it for the copy; what cannot be pinned is copied all the same."""
        buffer = (ctypes.c_char * len(view)).from_buffer(view)
        address = ctypes.c_void_p(ctypes.addressof(buffer))
        pinned = not self._library.cuMemHostRegister_v2(address, ctypes.c_size_t(len(view)), _PORTABLE)
        try:
            yield address
        finally:
            if pinned:
                self._library.cuMemHostUnregister(address)
            del buffer
            view.close()

    @contextlib.contextmanager
    def _contexts(self, devices: Mapping[str, int]) -> Iterator[None]:
        """Hold contexts on *devices*, or on all: the driver wants them. Raises `OSError`."""
        count, held = ctypes.c_int(), []
        self._checked("cuDeviceGetCount", ctypes.byref(count))
        try:
            for ordinal in range(count.value):
                device, context = ctypes.c_int(), ctypes.c_void_p()
                self._checked("cuDeviceGet", ctypes.byref(device), ordinal)
                if not devices or self._uuid(device) in devices:
                    self._checked("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                    held.append(device)
            yield
        finally:
            for device in held:
                self._library.cuDevicePrimaryCtxRelease_v2(device)

    def _device_of(self, extent: Extent) -> str:
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self._checked("cuStreamGetCtx", ctypes.c_void_p(extent.stream), ctypes.byref(context))
        self._checked("cuCtxSetCurrent", context)
        self._checked("cuCtxGetDevice", ctypes.byref(device))
        return self._uuid(device)

    def _uuid(self, device: ctypes.c_int) -> str:
        raw = (ctypes.c_ubyte * 16)()
        self._checked("cuDeviceGetUuid_v2", raw, device)
        return f"GPU-{uuid.UUID(bytes=bytes(raw))}"

    def _checked(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise OSError(f"{name}: error {code}")
