"""Says before each snapshot whether it fits in host memory, and why not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent import admission, cgroups, host_memory, processes
from slurm_interleave.node_agent.admission import Disk, Limit, Need, Node
from slurm_interleave.node_agent.backends.protocol import Charge, Mover, it_fits
from slurm_interleave.node_agent.state import Job, State

log = logging.getLogger(__name__)
_SAVED = (Context.SAVED, Context.SAVING)


@dataclass(frozen=True)
class Room:
    """Where a snapshot goes: nowhere, with the reason, or to disk, or to host memory.

    *fits* says why host memory does not hold what a mover has to save there beside the disk.
    """

    refusal: str = ""
    spill: bool = False
    fits: Callable[[Mover, int], Awaitable[str]] = it_fits


class HostRoom:
    """The host memory of this node, the disk beside it, and the saved state that is there."""

    def __init__(
        self,
        state: State,
        cap_bytes: int = 0,
        node: Callable[[], Node] = host_memory.of_node,
        limits: Callable[[str], list[Limit]] | None = None,
        disk: Callable[[], Disk] | None = None,
    ) -> None:
        """*cap_bytes* is the site's limit for all saved state, 0: none. *node*, *limits* and *disk* look."""
        self._state = state
        self._cap_bytes = cap_bytes
        self._node = node
        self._limits = limits or _limits_of
        self._disk = disk

    @property
    def size(self) -> int:
        """Bytes that saved state may take in all; 0: nobody knows, or a disk takes what does not fit."""
        if self._disk is not None:
            return 0
        try:
            total = self._node().total
        except OSError:
            return self._cap_bytes
        return min(self._cap_bytes or total, admission.room(total))

    async def place(self, job: Job, mover: Mover, size: int) -> Room:
        """Return where *mover* can save the *size* bytes of *job*: on disk only what fits nowhere else."""
        why = await self.refusal(job, mover, size)
        if not why or self._disk is None or not mover.can_spill:
            return Room(why)
        try:
            disk = self._disk()
        except OSError as error:
            return Room(f"{why}; nor on disk: {error}")
        going = [each.context for each in self._others(job) if each.context.state is Context.SAVING]
        promised = sum(context.bytes for context in going if context.spilled)
        beyond = admission.disk_refusal(mover.saved_size(size), replace(disk, promised=promised))
        return Room(f"{why}; {beyond}") if beyond else Room(spill=True, fits=partial(self.refusal, job))

    def _others(self, job: Job) -> list[Job]:
        return [each for each in self._state.jobs.values() if each is not job]

    async def refusal(self, job: Job, mover: Mover, size: int) -> str:
        """Return why *mover* cannot save in host memory the *size* bytes of *job*; empty: it can."""
        if mover.charge is Charge.NOTHING:
            return ""
        to_job = mover.charge is Charge.JOB
        need = Need(mover.saved_size(size), mover.fresh_size(job.job_id, size), charged_to_job=to_job)
        if need.size <= 0:
            return ""
        try:
            limits = await asyncio.to_thread(self._limits, job.job_id) if to_job and need.fresh else []
            node = self._node()
        except OSError as error:  # what cannot be seen holds nothing up
            log.warning("memory.blind", extra={"job": job.job_id, "reason": str(error)})
            return ""
        others = [each.context for each in self._others(job)]
        promised = sum(context.memory_bytes for context in others if context.state is Context.SAVING)
        saved = sum(context.memory_bytes for context in others if context.state in _SAVED)
        saved += sum(sum(each.copies.values()) for each in self._state.jobs.values())
        if mover.copy_name:
            saved -= job.copies.get(mover.copy_name, 0)  # the new one takes its place
        node = Node(node.total, node.available, promised)
        why = admission.refusal(need, limits, node, self._cap_bytes, saved)
        return f"job {job.job_id}: {why}" if why else ""


def _limits_of(job_id: str, proc: Path = Path("/proc")) -> list[Limit]:
    # Whoever likes writes a job's id into his own environment: one process elsewhere would hide all limits.
    named = processes.of_jobs([job_id], proc)[job_id]
    own = [pid for pid in named if cgroups.job_directories(pid, job_id, proc)]
    return host_memory.of_job(own or named, proc)
