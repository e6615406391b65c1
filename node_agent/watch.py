"""Notices by itself that a job is over, since an epilog can come late or never.

No processes is only a hint: on a node between two steps of a Slurm job there are none. So Slurm is asked,
rarely, about jobs that have numbers for names; other jobs (no Slurm) are over when their processes are gone.
Jobs that were registered with a process end with it: see `registrations`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.core.slurm_command import run_slurm
from slurm_interleave.client.core.states import SLURM_ENDED
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.state import Job, State

log = logging.getLogger(__name__)
_LOOKS_TO_BE_SURE = 2
_ASK_SLURM_EVERY = 12  # looks
_SQUEUE_S = 10.0
# A job that Slurm has put back into the queue is over here too.
_OVER = SLURM_ENDED | {"PENDING"}


class Watch:
    """Looks at the processes of all jobs every *every_s* seconds and ends the jobs that are over."""

    def __init__(
        self,
        state: State,
        end: Callable[[str], Awaitable[None]],
        every_s: float,
        is_over: Callable[[str], Awaitable[bool]] | None = None,
        notices: Sequence[Callable[[Job, list[int]], Awaitable[None]]] = (),
    ) -> None:
        """*end* ends a job; *is_over* asks Slurm about one (default: squeue); *notices* look closer
        at one and its processes."""
        self._state = state
        self._end = end
        self._every_s = every_s
        self._is_over = is_over or is_over_in_slurm
        self._notices = notices
        self._empty_looks: dict[str, int] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.look()

    async def look(self) -> None:
        """Look once; where it cannot look, no job is over."""
        self._state.catch_up()
        jobs = [job for job in self._state.jobs.values() if not (job.ended or job.request.pid)]
        try:
            alive = await asyncio.to_thread(processes.of_jobs, [job.job_id for job in jobs])
        except OSError as error:
            log.warning("watch.blind", extra={"reason": str(error)})
            return
        for job in jobs:
            for notice in self._notices:
                # One without processes too: it lives on while Slurm cannot be told of its end.
                await notice(job, alive[job.job_id])
            if alive[job.job_id]:
                job.had_processes = True
                self._empty_looks.pop(job.job_id, None)
                continue
            looks = self._empty_looks[job.job_id] = self._empty_looks.get(job.job_id, 0) + 1
            if await self._gone(job.job_id, job.had_processes, looks):
                log.warning("job.vanished", extra={"job": job.job_id})
                self._empty_looks.pop(job.job_id, None)
                await self._end(job.job_id)

    async def _gone(self, job_id: str, had_processes: bool, looks: int) -> bool:
        if not job_id.isdigit():
            return had_processes and looks >= _LOOKS_TO_BE_SURE
        return looks % _ASK_SLURM_EVERY == _LOOKS_TO_BE_SURE and await self._is_over(job_id)


async def is_over_in_slurm(job_id: str) -> bool:
    """Ask squeue; where it does not answer, the job counts as alive."""
    command = ["squeue", "--noheader", f"--jobs={job_id}", "--states=all", "--format=%T"]
    try:
        states = set((await run_slurm(command, _SQUEUE_S)).split())
    except OSError:
        return False
    except SlurmFailed as error:
        return "Invalid job id" in str(error)
    return states <= _OVER
