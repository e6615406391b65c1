"""NVIDIA's `cuda-checkpoint` program with drivers 550 to 554, which know `--toggle` alone.

There is no lock, and nobody says where a process is: NVML lists it while it is on a device. A toggle goes the
way that NVML does not see it on yet, so it is never made twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_interleave.node_agent.backends.cuda.nvml import Nvml
from slurm_interleave.node_agent.backends.cuda.table import (
    ILLEGAL_STATE,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    State,
)
from slurm_interleave.node_agent.backends.cuda.tool import run


class Toggle:
    """The calls of `Driver`, as far as a toggle gives them. Raises `NvmlError` where NVML gives no answer."""

    def __init__(self, program: str, nvml: Nvml) -> None:
        self._program = program
        self._nvml = nvml

    def state(self, pid: int) -> tuple[int, int]:
        """Return the state of a process that is known to use CUDA."""
        return 0, State.RUNNING if self._is_listed(pid) else State.CHECKPOINTED

    def thread(self, pid: int) -> tuple[int, int]:
        """Tell whether a process is on a device; of one that is saved it cannot be known."""
        return (0, pid) if self._is_listed(pid) else (NOT_INITIALIZED, 0)

    def lock(self, pid: int, timeout_ms: int) -> tuple[int, int]:  # noqa: ARG002
        """There is no lock: a toggle waits for the process's work, for as long as that takes."""
        return self.thread(pid)[0], 0

    def checkpoint(self, pid: int) -> tuple[int, int]:
        """Copy device memory to host memory, and free it."""
        return self._toggled(pid, State.RUNNING)

    def restore(self, pid: int, pairs: Sequence[Sequence[str]] = ()) -> tuple[int, int]:
        """Bring it back, to the same devices alone; it runs then."""
        return (NOT_SUPPORTED, 0) if pairs else self._toggled(pid, State.CHECKPOINTED)

    def unlock(self, pid: int) -> tuple[int, int]:  # noqa: ARG002
        """It was never locked."""
        return 0, 0

    def _toggled(self, pid: int, goes_from: State) -> tuple[int, int]:
        if self.state(pid)[1] is not goes_from:
            return ILLEGAL_STATE, 0
        return run([self._program, "--toggle", "--pid", str(pid)])[0], 0

    def _is_listed(self, pid: int) -> bool:
        rows = (row for device in self._nvml.devices() for row in device["processes"])
        return any(listed == pid and size != 0 for listed, size in rows)
