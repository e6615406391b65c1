"""Writes what a job had of its turns into Slurm's accounting, as its AdminComment, once it is over.

The database takes slurmctld's AdminComment at the end of the job, and slurmctld changes none after that. So
this waits until the database knows the end, and then changes it there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from slurm_interleave.client.core.errors import BadName, SlurmFailed
from slurm_interleave.client.core.names import parse_group_name
from slurm_interleave.orchestrator.placement.admin_comment import AdminComment, format_comment, parse_comment
from slurm_interleave.orchestrator.placement.figures import Figures
from slurm_interleave.orchestrator.placement.plan import Placement
from slurm_interleave.orchestrator.placement.squeue import SlurmJob

log = logging.getLogger(__name__)
_TRIES = 100  # until the database knows the end of a job, each `again_s` after the last


class Accounting(Protocol):
    """Slurm's accounting. Each method raises `SlurmFailed`."""

    async def keeps_jobs(self) -> bool:
        """Tell whether there is a slurmdbd."""

    async def account(self, job_id: str, admin_comment: str) -> bool:
        """Write the admin comment of a job; False: the database does not know its end yet."""


class Accounts:
    """The jobs that are over and not accounted for; a restart of the orchestrator forgets them."""

    def __init__(
        self, slurm: Accounting, figures: Callable[[str], Awaitable[Figures]], again_s: float = 5.0
    ) -> None:
        """*figures* gives those of a job."""
        self._slurm, self._figures, self._again_s = slurm, figures, again_s
        self._due: dict[str, AdminComment] = {}
        self._tries: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._failure = ""  # that was logged last

    def over(self, placement: Placement, queue: Sequence[SlurmJob]) -> None:
        """Account for a job that is over; it may still be in *queue*."""
        self._due[placement.job_id] = _last_comment(placement, queue)
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled. Slurm's failures are logged, and tried again."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
                self._failure = ""
            except SlurmFailed as error:
                if str(error) != self._failure:
                    self._failure = str(error)
                    log.warning("accounting.failed", extra={"reason": self._failure})
            if self._due:
                asyncio.get_running_loop().call_later(self._again_s, self._changed.set)

    async def _write(self) -> None:
        if not await self._slurm.keeps_jobs():
            self._due.clear()
            self._tries.clear()
        for job_id, comment in list(self._due.items()):
            figures = await self._figures(job_id)
            known = await self._slurm.account(job_id, format_comment(comment.ended(str(figures))))
            self._tries[job_id] = self._tries.get(job_id, 0) + 1
            if known:
                log.info("accounting.written", extra={"job": job_id, "figures": str(figures)})
            elif self._tries[job_id] >= _TRIES:
                log.warning("accounting.given_up", extra={"job": job_id, "tries": _TRIES})
            else:
                continue
            del self._due[job_id], self._tries[job_id]


def _last_comment(placement: Placement, queue: Sequence[SlurmJob]) -> AdminComment:
    """Return the comment of a job that is over: what slurmctld still has, or else what the book says."""
    for job in queue:
        if job.job_id == placement.job_id:
            with contextlib.suppress(BadName):
                if comment := parse_comment(job.admin_comment):
                    return comment
    group = parse_group_name(placement.group)
    comment = AdminComment(group, len(placement.nodes), len(placement.devices), placement.role)
    return comment.released(placement)
