"""What Slurm says of the jobs that take turns, as events for the core."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.placement.figures import Figures
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.store import SliceFilter

log = logging.getLogger(__name__)


class RegisteredMembers:
    """Implements `placement.ports.Members` on the arbiter's core."""

    def __init__(self, arbiter: Arbiter) -> None:
        self._arbiter = arbiter
        self._unlisted: dict[str, float] = {}  # since when Slurm has no run of them
        self._hidden: set[str] = set()  # that run all the same

    def listed(self, queue: Sequence[SlurmJob]) -> list[str]:
        """End what waits or is over in the whole *queue* and had no run in the one before.

        Each was read a moment ago: whoever was registered at the first look would be in the second. Return
        what both lack: a job that is hidden lives, and to end it cannot be undone, so it is asked for.
        """
        now = self._arbiter.wall()  # by which agents tell when a run began
        runs = {job.job_id for job in queue if not (job.finished or job.pending)}
        before, self._unlisted = self._unlisted, {}
        for job_id in self._live() - runs:
            self._unlisted[job_id] = before.get(job_id, now)
        twice = before.keys() & self._unlisted.keys()
        idle = {job.job_id for job in queue} & twice
        for job_id in idle:
            self._end(job_id)
        return sorted(twice - idle)

    def answered(self, job_id: str, runs: bool) -> None:
        """Take what slurmctld says of a job that was asked for; one that runs is looked for anew."""
        if not runs:
            self._end(job_id)
            return
        self._unlisted.pop(job_id, None)
        if job_id not in self._hidden:
            log.warning("job.hidden", extra={"job": job_id, "reason": "it runs, but Slurm's list lacks it"})
        self._hidden = self._hidden & self._live() | {job_id}

    def _end(self, job_id: str) -> None:
        since = self._unlisted.pop(job_id)  # a run that began later is looked for anew
        self._arbiter.post(ev.JobOver(self._arbiter.now(), job_id, since))
        if job_id not in self._live():
            log.warning("job.over", extra={"job": job_id, "reason": "Slurm has no run of it"})

    def _live(self) -> set[str]:
        """Return Slurm's jobs that take turns; only it gives numbers, other jobs have a `+` in their ids."""
        members = self._arbiter.core.state.members.values()
        return {member.job_id for member in members if member.job_id.isdecimal() and not member.over}

    def heard(self, jobs: Sequence[SlurmJob]) -> None:
        """Tell the core what is new of the jobs that are registered."""
        events: list[ev.Event] = [event for job in jobs for event in self._news(job)]
        components = {job.job_id: job.heterogeneous for job in jobs if job.heterogeneous}
        if components != self._arbiter.core.state.drivers.components:
            events.append(ev.Components(self._arbiter.now(), components))
        if events:
            self._arbiter.post(*events)

    def fault(self, job_id: str) -> str:
        """Return why the job's device state is lost; empty if it is not."""
        state = self._arbiter.core.state
        members = (state.members[key] for key in state.jobs.get(job_id, ()))
        return next((member.fault for member in members if member.fault and not member.over), "")

    def _news(self, job: SlurmJob) -> Iterator[ev.JobEvent]:
        state, now = self._arbiter.core.state, self._arbiter.now()
        members = [state.members[key] for key in state.jobs.get(job.job_id, ())]
        known = state.priorities.get(job.job_id)
        nameless = (job.account and not all(member.account for member in members)) or (
            job.title and not all(member.name for member in members)
        )
        # A held or suspended job has priority 0, which says nothing of its weight.
        weight = job.priority if job.priority > 0 else known or 0
        suspended = "SUSPENDED" in job.states
        if members and suspended != (job.job_id in state.pauses.suspended):
            yield ev.Suspended(now, job.job_id, suspended)
        if members and (nameless or weight not in (0, known)):
            yield ev.Weigh(now, job.job_id, weight, job.account, job.title)


class TurnFigures:
    """What jobs had of their turns, from the arbiter's memory."""

    def __init__(self, arbiter: Arbiter) -> None:
        self._arbiter = arbiter

    async def of(self, job_id: str) -> Figures:
        """Return the figures of a job."""
        figures = Figures()
        async for page in self._arbiter.slices(SliceFilter(job_ids=(job_id,))):
            slices = [row for row in page if isinstance(row, Slice)]  # and no sums, which nobody asked for
            figures = figures.plus(slices, self._arbiter.now())
        return figures
