"""What NVML says of the node's devices, without any package. Only helpers call it.

Layouts are those of nvml.h; a value of all ones means that NVML does not know.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_UNSUPPORTED, _NOT_FOUND, _TOO_SMALL, _LOST = 3, 6, 7, 15
_RECENTLY_S = 1.0  # the driver samples several times a second
_UNKNOWN = 2**64 - 1
_TEXT = 96


class NvmlError(Exception):
    """NVML cannot be used; the text says which call, and its code."""


class _Lost(NvmlError):
    """One device has fallen off the bus; NVML can be used for the others."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Sample(ctypes.Structure):
    """nvmlProcessUtilizationSample_t; shares of the time in percent."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("time_us", ctypes.c_ulonglong),
        ("cores", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    )


class _Rates(ctypes.Structure):
    """nvmlUtilization_t; shares of the time in percent."""

    _fields_ = (("cores", ctypes.c_uint), ("memory", ctypes.c_uint))


class Nvml:
    """An open NVML."""

    def __init__(self) -> None:
        """Open it. Raises `NvmlError`."""
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise NvmlError(str(error)) from None
        self._call("nvmlInit_v2")

    def driver(self) -> str:
        """Return the driver's version, as 580.95.05."""
        text = ctypes.create_string_buffer(_TEXT)
        self._call("nvmlSystemGetDriverVersion", text, _TEXT)
        return text.value.decode()

    def devices(self) -> list[dict[str, Any]]:
        """Return each device with its memory in bytes and the processes on it; `mig` None: it has none.

        `index` is that of /dev/nvidiaN, which is what Slurm counts by. One that has fallen off the bus is
        left out, that the jobs of the others go on.
        """
        count, found = ctypes.c_uint(), []
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            with contextlib.suppress(_Lost):
                found.append(self._device(index))
        return found

    def _device(self, number: int) -> dict[str, Any]:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(handle))
        memory, minor, mode = _Memory(), ctypes.c_uint(), ctypes.c_uint()
        self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        self._call("nvmlDeviceGetMinorNumber", handle, ctypes.byref(minor))
        self._call("nvmlDeviceGetPersistenceMode", handle, ctypes.byref(mode))
        return {
            "index": minor.value,
            "uuid": self._text("nvmlDeviceGetUUID", handle),
            "name": self._text("nvmlDeviceGetName", handle),
            "total": memory.total,
            "free": memory.free,
            "used": memory.used,
            "persistence": bool(mode.value),
            "mig": self._mig(handle),
            "processes": self._processes(handle),
            "working": self._working(handle),
            "load": self._load(handle),
        }

    def _mig(self, handle: ctypes.c_void_p) -> bool | None:
        now, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._call(
            "nvmlDeviceGetMigMode", handle, ctypes.byref(now), ctypes.byref(pending), fine=(_UNSUPPORTED,)
        )
        return None if code == _UNSUPPORTED else bool(now.value)

    def _processes(self, handle: ctypes.c_void_p) -> list[tuple[int, int | None]]:
        """Return process ids and bytes; again with more room while their number grows."""
        room = 0
        while True:
            count = ctypes.c_uint(room)
            rows = (_Process * max(room, 1))()
            code = self._call(
                "nvmlDeviceGetComputeRunningProcesses_v3",
                handle,
                ctypes.byref(count),
                rows if room else None,
                fine=(_TOO_SMALL,),
            )
            if code == 0:
                break
            room = count.value * 2 + 5
        return [(row.pid, None if row.used == _UNKNOWN else row.used) for row in rows[: count.value]]

    def _working(self, handle: ctypes.c_void_p) -> list[int]:
        """Return the processes that have computed within the last second; none where NVML does not say."""
        since = ctypes.c_ulonglong(int((time.time() - _RECENTLY_S) * 1e6))
        count, name = ctypes.c_uint(), "nvmlDeviceGetProcessUtilization"
        fine = (_UNSUPPORTED, _NOT_FOUND, _TOO_SMALL)
        if not hasattr(self._library, name):
            return []
        if self._call(name, handle, None, ctypes.byref(count), since, fine=fine) not in (0, _TOO_SMALL):
            return []
        rows = (_Sample * max(count.value, 1))()
        if self._call(name, handle, rows, ctypes.byref(count), since, fine=fine) != 0:
            return []
        return sorted({row.pid for row in rows[: count.value] if row.cores})

    def _load(self, handle: ctypes.c_void_p) -> int | None:
        """Return for how much of the last moments the device computed or moved memory, in percent.

        None where NVML does not say. It averages over a sixth of a second to one second, by the device.
        """
        rates, name = _Rates(), "nvmlDeviceGetUtilizationRates"
        if not hasattr(self._library, name):
            return None
        code = self._call(name, handle, ctypes.byref(rates), fine=(_UNSUPPORTED,))
        return None if code == _UNSUPPORTED else max(rates.cores, rates.memory)

    def _text(self, name: str, handle: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_TEXT)
        self._call(name, handle, text, _TEXT)
        return text.value.decode()

    def _call(self, name: str, *arguments: Any, fine: tuple[int, ...] = ()) -> int:
        with contextlib.suppress(AttributeError):
            code: int = getattr(self._library, name)(*arguments)
            if code in (0, *fine):
                return code
            raise (_Lost if code == _LOST else NvmlError)(f"{name}: error {code}")
        raise NvmlError(f"{_LIBRARY} has no {name}")
