"""The driver's checkpoint functions, called without any package. Only helpers call them.

Layouts and codes are those of cuda.h (Checkpointing, since 12.8; GPU pairs since 13.0). All argument
structures have 64 bytes, and what is reserved in them must be zero.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Mapping, Sequence

from slurm_interleave.node_agent.backends.cuda.store import COMPLETE, SINCE, Copier, Info, Store

_LIBRARY = "libcuda.so.1"
_SYMBOLS = ("GetState", "GetRestoreThreadId", "Lock", "Checkpoint", "Restore", "Unlock")


class LockArgs(ctypes.Structure):
    """CUcheckpointLockArgs."""

    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class GpuPair(ctypes.Structure):
    """CUcheckpointGpuPair."""

    _fields_ = (("old", ctypes.c_ubyte * 16), ("new", ctypes.c_ubyte * 16))


class RestoreArgs(ctypes.Structure):
    """CUcheckpointRestoreArgs."""

    _fields_ = (
        ("pairs", ctypes.POINTER(GpuPair)),
        ("count", ctypes.c_uint),
        ("padding", ctypes.c_uint),
        ("storage", ctypes.POINTER(ctypes.POINTER(Info))),  # since 13.4; reserved before
        ("reserved", ctypes.c_char * 40),
    )


class Driver:
    """Checkpoint calls; each returns the driver's code and a value. Times in milliseconds."""

    def __init__(self) -> None:
        """Load and start the driver's library. Raises `OSError` if there is none, or it will not start."""
        self._library = ctypes.CDLL(_LIBRARY)
        code = self._library.cuInit(0)
        if code != 0:
            raise OSError(f"{_LIBRARY}: cuInit: error {code}")

    def state(self, pid: int) -> tuple[int, int]:
        """Return the state of a process."""
        state = ctypes.c_int()
        code = self._library.cuCheckpointProcessGetState(pid, ctypes.byref(state))
        return code, state.value

    def thread(self, pid: int) -> tuple[int, int]:
        """Return the thread that restores a process: who has one uses CUDA."""
        thread = ctypes.c_int()
        code = self._library.cuCheckpointProcessGetRestoreThreadId(pid, ctypes.byref(thread))
        return code, thread.value

    def lock(self, pid: int, timeout_ms: int) -> tuple[int, int]:
        """Make the process's calls wait, once its work on the devices is done."""
        return self._library.cuCheckpointProcessLock(pid, ctypes.byref(LockArgs(timeout_ms))), 0

    def checkpoint(
        self, pid: int, store: str = "", sizes: Mapping[str, int] | None = None
    ) -> tuple[int, int]:
        """Copy device memory to host memory of the process, or to a *store*, and free it.

        *sizes* are its bytes by device. Raises `OSError` where a store cannot take them: nothing was done.
        """
        if store:
            return Copier(self._library).checkpoint(pid, Store(store), sizes or {}), 0
        return self._library.cuCheckpointProcessCheckpoint(pid, None), 0

    def restore(self, pid: int, pairs: Sequence[Sequence[str]] = (), store: str = "") -> tuple[int, int]:
        """Bring it back, from *store* if it is there.

        *pairs* of UUIDs name the old and the new device of every device of the node.
        """
        saved = Store(store) if store else None
        if saved is not None and saved.sizes:
            return Copier(self._library).restore(pid, saved, RestoreArgs(None, len(pairs))), 0
        if not pairs:
            return self._library.cuCheckpointProcessRestore(pid, None), 0
        array = (GpuPair * len(pairs))(*(GpuPair(_raw(old), _raw(new)) for old, new in pairs))
        arguments = RestoreArgs(array, len(pairs))
        return self._library.cuCheckpointProcessRestore(pid, ctypes.byref(arguments)), 0

    def unlock(self, pid: int) -> tuple[int, int]:
        """Let the process's calls go on."""
        return self._library.cuCheckpointProcessUnlock(pid, None), 0


def version() -> tuple[str, int, list[str]]:
    """Return why the library cannot be used (empty: it can), its CUDA version, and the functions it lacks."""
    try:
        library = ctypes.CDLL(_LIBRARY)
        number = ctypes.c_int()
        library.cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError) as error:
        return str(error), 0, []
    names = [f"cuCheckpointProcess{name}" for name in _SYMBOLS]
    return "", number.value, [name for name in names if not hasattr(library, name)]


def has_custom_storage() -> bool:
    """Tell whether a helper may copy device memory itself."""
    missing, number, _ = version()
    return not missing and number >= SINCE and hasattr(ctypes.CDLL(_LIBRARY), COMPLETE)


def _raw(text: str) -> ctypes.Array[ctypes.c_ubyte]:
    return (ctypes.c_ubyte * 16)(*uuid.UUID(text.removeprefix("GPU-")).bytes)
