"""Which processes take turns for a job, and whether they live: a job may outlive its lease's holder."""

from __future__ import annotations

from collections.abc import Callable

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.states import Attendance, Context
from slurm_interleave.client.sim import processes as alive
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.contexts import Seen
from slurm_interleave.node_agent.state import Job, State

_CLIENTS_MAX = 256


class Register:
    """The processes that have said so, by job; they outlive the agent."""

    def __init__(
        self, state: State, on_devices: Callable[[str], Seen | None], report: Callable[[Job], None]
    ) -> None:
        """*on_devices* sees what a job has on devices, *report* tells the orchestrator of a job."""
        self._state = state
        self._on_devices = on_devices
        self._report = report

    def attend(self, job: Job, pid: int) -> None:
        """A process takes turns for *job* from now on. Raises `BadArgument` if it is not the job's."""
        process = alive.process(pid) if processes.job_of(pid) == job.job_id else None
        if process is None:
            raise BadArgument(f"process {pid} is not one of job {job.job_id} on this node")
        if process not in job.clients:
            living = tuple(filter(alive.is_alive, job.clients))
            job.clients = (*living[1 - _CLIENTS_MAX :], process)
            self._state.save()
        self.look(job)

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
