"""One simulated device as a job sees it: buffers that are NumPy arrays, and work on them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from slurm_interleave.client.core.names import parse_job_id
from slurm_interleave.client.sim import records
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.errors import SimError
from slurm_interleave.client.sim.ranges import address_of
from slurm_interleave.client.sim.settings import SimConfig

Array = NDArray[Any]


class SimBuffer:
    """Memory on a simulated device; it keeps its contents through snapshot and restore, wherever it lies."""

    def __init__(
        self, arena: Arena, job: str, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        """Made by `SimDevice.put` and `SimDevice.empty`."""
        self.shape = shape
        self.dtype = dtype
        self.number = number
        self._arena = arena
        self._job = job

    @property
    def nbytes(self) -> int:
        """Size of the contents in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def address(self) -> int:
        """Where it begins, as requests for ranges of memory name it; the same wherever it lies."""
        return address_of(self.number)

    def get(self) -> Array:
        """Return a copy in host memory. Raises `NotResident`."""
        with self._arena.using(self._job, [self.number]) as views:
            return self.array_in(views[self.number][1]).copy()

    def set(self, values: Array) -> None:
        """Copy *values* (same shape, or one that broadcasts) onto the device. Raises `NotResident`."""
        with self._arena.using(self._job, [self.number]) as views:
            self.array_in(views[self.number][1])[...] = values

    def free(self) -> None:
        """Give the memory back; twice is fine."""
        self._arena.free(self.number)

    def array_in(self, view: memoryview) -> Array:
        """Return the bytes *view* of this buffer as an array."""
        return np.frombuffer(view[: self.nbytes], dtype=self.dtype).reshape(self.shape)


class SimDevice:
    """A simulated device, used by one job.

    Each job outside of interleaving may use it too: then nothing moves its buffers.
    """

    def __init__(self, arena: Arena, index: int, job: str, node: str = "") -> None:
        """Use device *index* of *arena* in the name of *job*; see `open`."""
        arena.check_index(index)
        self.arena = arena
        self.index = index
        self.job = job
        self._node = node

    @classmethod
    def open(cls, ordinal: int = 0, environ: Mapping[str, str] = os.environ) -> SimDevice:
        """Return the device that CUDA_VISIBLE_DEVICES names at place *ordinal* (without it: that index).

        The folder is INTERLEAVE_SIM_DIR. The owner is INTERLEAVE_JOB_ID, else SLURM_JOB_ID, else
        local-<pid>. Raises `SimError` if there is no such device.
        """
        directory = Path(environ.get("INTERLEAVE_SIM_DIR") or SimConfig.directory)
        job = environ.get("INTERLEAVE_JOB_ID") or environ.get("SLURM_JOB_ID") or f"local-{os.getpid()}"
        index = _index(environ.get("CUDA_VISIBLE_DEVICES", ""), ordinal)
        return cls(Arena.open(directory), index, parse_job_id(job), environ.get("INTERLEAVE_NODE", ""))

    @property
    def used_bytes(self) -> int:
        """Bytes that are taken on this device, by any job."""
        return self.arena.used_bytes(self.index)

    @property
    def total_bytes(self) -> int:
        """Capacity in bytes."""
        return self.arena.config.memory_bytes

    def put(self, values: Array) -> SimBuffer:
        """Allocate a buffer and copy *values* into it. Raises `OutOfMemory`, `NotResident`."""
        values = np.asarray(values)
        buffer = self.empty(values.shape, values.dtype)
        buffer.set(values)
        return buffer

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> SimBuffer:
        """Allocate a buffer with unspecified contents. Raises `OutOfMemory`, `NotResident`."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise SimError(f"dtype {kind} holds Python objects; a device holds plain numbers alone")
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        return SimBuffer(self.arena, self.job, self.arena.allocate(self.job, self.index, size), shape, kind)

    def run(self, name: str, fn: Callable[..., Any], *args: Any, seconds: float = 0.0) -> Any:
        """Run one kernel: call *fn*, where each buffer among *args* is an array on the device.

        The arrays are valid inside *fn* alone; what it returns is copied to the host. The kernel lasts at
        least *seconds*, which stands for the device's own time. Raises `NotResident`.
        """
        numbers = [arg.number for arg in args if isinstance(arg, SimBuffer)]
        with self.arena.using(self.job, numbers) as views:
            device = self._one_device(name, {where for where, _ in views.values()})
            inside = [
                arg.array_in(views[arg.number][1]) if isinstance(arg, SimBuffer) else arg for arg in args
            ]
            with self.arena.working(self.job, device, name):
                start, began = time.time(), time.monotonic()
                result = _to_host(fn(*inside))
                time.sleep(max(0.0, began + seconds - time.monotonic()))
                self._record(name, device, start, start + time.monotonic() - began)
            return result

    def _one_device(self, name: str, devices: set[int]) -> int:
        if len(devices) > 1:
            raise SimError(f"{name}: its buffers lie on devices {sorted(devices)}; a kernel runs on one")
        return devices.pop() if devices else self.index

    def _record(self, name: str, device: int, start: float, end: float) -> None:
        records.append_line(
            self.arena.directory / records.WORK,
            start=start,
            end=end,
            job=self.job,
            name=name,
            device=f"{self._node}/{device}" if self._node else str(device),
        )


def _index(visible: str, ordinal: int) -> int:
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if not names:
        return ordinal
    if ordinal >= len(names):
        raise SimError(f"no device at place {ordinal}: CUDA_VISIBLE_DEVICES={visible!r} has {len(names)}")
    found = re.search(r"\d+$", names[ordinal])
    if found is None:
        raise SimError(f"CUDA_VISIBLE_DEVICES={visible!r}: {names[ordinal]!r} does not end in an index")
    return int(found.group())


def _to_host(value: Any) -> Any:
    """Return *value* with each array in it copied, since the device's memory is not the host's to keep."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: _to_host(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_to_host(item) for item in value)
    return value
