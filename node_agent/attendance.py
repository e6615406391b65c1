"""Which processes take turns for a job, and whether they live: a job may outlive its lease's holder.

Our client says so itself. For callers of v1alpha1 on the job's socket the agent does, where they keep their
connection to it from one look to the next: such a process is there as long as it lives. One that connects for
a single call says nothing by its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.states import Attendance, Context
from slurm_interleave.client.sim import processes as alive
from slurm_interleave.client.sim.processes import Process
from slurm_interleave.node_agent import processes, sessions
from slurm_interleave.node_agent.contexts import Seen
from slurm_interleave.node_agent.state import Job, State

_CLIENTS_MAX = 256


class Register:
    """The processes that have said so, by job; they outlive the agent."""

    def __init__(
        self,
        state: State,
        on_devices: Callable[[str], Seen | None],
        report: Callable[[Job], None],
        folder: Callable[[str], Path],
    ) -> None:
        """*on_devices* sees what a job has on devices, *report* tells the orchestrator of a job.

        *folder* is where the job's socket is.
        """
        self._state = state
        self._on_devices = on_devices
        self._report = report
        self._folder = folder
        self._callers: dict[str, frozenset[Process]] = {}  # by attempt: connected at the last look

    def attend(self, job: Job, pid: int) -> None:
        """A process takes turns for *job* from now on. Raises `BadArgument` if it is not the job's."""
        process = alive.process(pid) if processes.job_of(pid) == job.job_id else None
        if process is None:
            raise BadArgument(f"process {pid} is not one of job {job.job_id} on this node")
        self._add(job, process)
        self.look(job)

    def _add(self, job: Job, process: Process) -> None:
        if process not in job.clients:
            living = tuple(filter(alive.is_alive, job.clients))
            job.clients = (*living[1 - _CLIENTS_MAX :], process)
            self._state.save()

    def asked(self, job: Job) -> bool:
        """A caller of v1alpha1 acquires: whoever else was there and has ended says nothing of him.

        Tell whether all who were known to be there have ended.
        """
        attempts = {one.attempt for one in self._state.jobs.values()}
        known = {attempt: there for attempt, there in self._callers.items() if attempt in attempts}
        self._callers = {job.attempt: frozenset(), **known}
        if not job.clients or any(map(alive.is_alive, job.clients)):
            return False
        job.clients, job.attendance = (), Attendance.UNKNOWN
        self._state.save()
        self._report(job)
        return True

    def unplugged(self, job: Job, pids: Sequence[int]) -> AbstractAsyncContextManager[None]:
        """Keep *pids* off the socket of *job* in the block: a connection cannot be saved with its process.

        Callers of v1alpha1 keep theirs, since they would not call again.
        """
        if job.attempt in self._callers:
            return nullcontext()
        return sessions.unplugged(self._folder(job.job_id) / "socket", pids)

    async def notice(self, job: Job, pids: Sequence[int]) -> None:
        """Look at *job*, whose processes are *pids*, again and again."""
        before = self._callers.get(job.attempt)
        # To look who is connected costs as much as the job has open files.
        if before is not None and not any(map(alive.is_alive, job.clients)):
            now = await asyncio.to_thread(self._connected, job, pids)
            for process in before & now:
                self._add(job, process)
            self._callers[job.attempt] = now
        self.look(job)

    def _connected(self, job: Job, pids: Sequence[int]) -> frozenset[Process]:
        try:
            found = sessions.of(self._folder(job.job_id) / "socket", pids)
        except OSError:  # the kernel does not tell: then nobody is known to be there, nor to be gone
            return frozenset()
        return frozenset(process for pid in found if (process := alive.process(pid)) is not None)

    def look(self, job: Job) -> None:
        """See who of *job* lives still, and report a change."""
        if not job.clients:
            return
        here = any(map(alive.is_alive, job.clients)) or self._has_state(job)
        attendance = Attendance.PRESENT if here else Attendance.GONE
        if attendance is not job.attendance:
            job.attendance = attendance
            self._state.save()
            self._report(job)

    def _has_state(self, job: Job) -> bool:
        """Tell whether one of its processes, who may not have said that it takes turns, uses a device."""
        seen = self._on_devices(job.job_id)
        return seen is not None and seen.state is Context.RESIDENT
