"""Which processes of a job have something on a device that the driver can save."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

from slurm_interleave.node_agent import job_processes
from slurm_interleave.node_agent.backends.cuda.helpers import Helpers
from slurm_interleave.node_agent.backends.cuda.sight import Sight
from slurm_interleave.node_agent.job_processes import Owner
from slurm_interleave.node_agent.processes import Process

_ASK_S = 5.0
_AT_ONCE = 4
_DEVICE_FILES = "/dev/nvidia"


class Unsavable(Exception):
    """A process holds device memory that the driver cannot save."""


class Census:
    """Looks for the processes of a job that count."""

    def __init__(self, helpers: Helpers, sight: Sight) -> None:
        self._helpers = helpers
        self._sight = sight

    async def take(self, job: str, owner: Owner, known: Collection[Process] = ()) -> list[Process]:
        """Return the processes that use CUDA, without those *known*; by the devices as last seen.

        One that NVML lists with 0 bytes has only touched the device, and is left alone. NVML does not list
        all (a saved one, or one with VMM memory alone), so the driver is asked for the rest. Raises
        `Unsavable`, `HelperLost`, `HelperUnusable` and `OSError`.
        """
        found = await asyncio.to_thread(self._candidates, job, owner)
        new = [process for process in found if process not in known]
        limit = asyncio.Semaphore(_AT_ONCE)

        async def counts(process: Process) -> bool:
            async with limit:
                return await self._counts(process)

        answers = await asyncio.gather(*(counts(process) for process in new))
        return [process for process, yes in zip(new, answers, strict=True) if yes]

    async def holders(self, job: str, owner: Owner, known: Collection[int]) -> str:
        """Return which processes of the job but those *known* keep files of the driver open, in words."""
        found = await asyncio.to_thread(job_processes.of_job, job, owner)
        pids = [
            process.pid for process in found if process.pid not in known and _has_device_open(process.pid)
        ]
        if not pids:
            return ""
        named = ", ".join(map(str, pids))
        return f"; {_DEVICE_FILES}* is open in process {named}, maybe forked and not executed"

    def _candidates(self, job: str, owner: Owner) -> list[Process]:
        return [
            process
            for process in job_processes.of_job(job, owner)
            if self._sight.used_by(process.pid) or _has_loaded_cuda(process.pid)
        ]

    async def _counts(self, process: Process) -> bool:
        used = self._sight.used_by(process.pid)
        if used and not any(size != 0 for size in used.values()):
            return False
        code, _ = await self._helpers.ask(
            "thread", _ASK_S, ended=lambda: not job_processes.is_alive(process), pid=process.pid
        )
        if code == 0 or not any(used.values()) or not job_processes.is_alive(process):
            return code == 0
        raise Unsavable(
            f"process {process.pid} has {sum(size or 0 for size in used.values())} bytes on the devices, but "
            f"the driver cannot save it (error {code}): it may be a child that was forked and not executed"
        )


def _has_loaded_cuda(pid: int) -> bool:
    try:
        return b"/libcuda.so" in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False


def _has_device_open(pid: int) -> bool:
    try:
        files = Path(f"/proc/{pid}/fd").iterdir()
        return any(os.fspath(file.readlink()).startswith(_DEVICE_FILES) for file in files)
    except OSError:
        return False
