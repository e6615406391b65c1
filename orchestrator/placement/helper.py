"""The co-allocation helper: gives held jobs their place and releases them.

Each step can be done twice, and the order is record, reserve, pin, release; so whatever a crash leaves half
done, the next round completes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping

from slurm_interleave.client.core.errors import BadName, SlurmFailed
from slurm_interleave.orchestrator.placement.admin_comment import (
    PLACED,
    AdminComment,
    format_comment,
    parse_comment,
)
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from slurm_interleave.orchestrator.placement.plan import Pending, Placement, plan
from slurm_interleave.orchestrator.placement.ports import Book, Fleet, Slurm
from slurm_interleave.orchestrator.placement.squeue import SlurmJob

log = logging.getLogger(__name__)

Jobs = Mapping[str, tuple[SlurmJob, AdminComment]]


def gres_request(placement: Placement) -> str:
    """Return what the job asks of Slurm on each node, such as `ilva:g0:1,ilva:g1:1`."""
    return ",".join(f"{placement.lane}:g{device}:1" for device in placement.devices)


class PlacementHelper:
    """Looks at Slurm's queue each `poll_s` seconds, or at once after `nudge`."""

    def __init__(self, slurm: Slurm, book: Book, fleet: Fleet, config: PlacementConfig) -> None:
        self._slurm, self._book, self._fleet, self._config = slurm, book, fleet, config
        self._nudged = asyncio.Event()
        # What was logged last for each job, so that a lasting failure is logged once.
        self._reported: dict[str, str] = {}
        # A job that was released and is held again was held by somebody else: that is left alone.
        self._released: set[str] = set()

    def nudge(self) -> None:
        """Look now: a job has ended or an agent has come."""
        self._nudged.set()

    async def run(self) -> None:
        """Place jobs until cancelled. Slurm's failures are logged, and tried again in the next round."""
        while True:
            self._nudged.clear()
            try:
                await self.round()
                self._reported.pop("squeue", None)
            except SlurmFailed as error:
                self._report("slurm.unreachable", "squeue", error)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), self._config.poll_s)

    async def round(self) -> None:
        """Bring book, agents and Slurm together once. Raises `SlurmFailed` if the queue cannot be read."""
        # The book first: what it holds was in the queue before, so what the queue lacks is over.
        book = {placement.job_id: placement for placement in await self._book.placements()}
        jobs = self._ours(await self._slurm.jobs())
        for job_id in [job_id for job_id in book if job_id not in jobs]:
            await self._drop(book.pop(job_id))
        for job_id, (job, comment) in jobs.items():
            if job_id in book:
                await self._repair(job, comment, book[job_id])
            else:
                await self._recover(job, comment, book)
        waiting = [
            Pending(job_id, comment.group, comment.role, comment.nodes, comment.devices)
            for job_id, (job, comment) in jobs.items()
            if job.held and not job.dependency
        ]
        for placement in plan(waiting, book.values(), self._fleet.nodes(), self._config.lanes):
            await self._place(placement, jobs[placement.job_id][1])

    def _ours(self, queue: list[SlurmJob]) -> Jobs:
        """Return the interleaved jobs that are not over, in the order of their ids."""
        found = {}
        for job in sorted(queue, key=lambda job: (len(job.job_id), job.job_id)):
            with self._reports(job.job_id):
                comment = parse_comment(job.admin_comment)
                if comment and not job.finished:
                    found[job.job_id] = (job, comment)
        self._released &= found.keys()
        for key in self._reported.keys() - {job.job_id for job in queue} - {"squeue"}:
            del self._reported[key]
        return found

    async def _drop(self, placement: Placement) -> None:
        await self._book.drop(placement.job_id)
        self._fleet.forget(placement.job_id)
        log.info("placement.dropped", extra={"job": placement.job_id, "group": placement.group})

    async def _repair(self, job: SlurmJob, comment: AdminComment, placement: Placement) -> None:
        """Finish what a crash or a failure left undone: the job has its place but does not know."""
        if not job.held or job.job_id in self._released:
            return
        if comment != comment.placed(placement):
            await self._place(placement, comment)
            return
        self._fleet.reserve(placement)
        with self._reports(job.job_id):
            await self._release(placement)

    async def _recover(self, job: SlurmJob, comment: AdminComment, book: dict[str, Placement]) -> None:
        """Treat a job that the book does not know: take over one that runs, hold one that could start."""
        if job.started and comment.state == PLACED:
            placement = Placement(
                job.job_id, comment.group, comment.role, job.nodes, comment.indices, comment.lane
            )
            await self._book.record(placement)
            book[job.job_id] = placement
            log.warning("placement.adopted", extra=_fields(placement))
        elif job.pending and not job.held:
            # Requeued after its place was given back, or released by hand: it would start without a place.
            self._released.discard(job.job_id)
            with self._reports(job.job_id):
                await self._slurm.hold(job.job_id)
                log.info("placement.held_again", extra={"job": job.job_id, "group": comment.group})

    async def _place(self, placement: Placement, comment: AdminComment) -> None:
        await self._book.record(placement)
        self._fleet.reserve(placement)
        text = format_comment(comment.placed(placement))
        with self._reports(placement.job_id):
            await self._slurm.pin(placement.job_id, placement.nodes, gres_request(placement), text)
            await self._release(placement)

    async def _release(self, placement: Placement) -> None:
        await self._slurm.release(placement.job_id)
        self._released.add(placement.job_id)
        log.info("placement.released", extra=_fields(placement))

    @contextlib.contextmanager
    def _reports(self, job_id: str) -> Iterator[None]:
        """Log what goes wrong with this one job; the others carry on, and the next round tries again."""
        try:
            yield
        except BadName as error:
            self._report("placement.unreadable", job_id, error)
        except SlurmFailed as error:
            self._report("placement.failed", job_id, error)

    def _report(self, event: str, key: str, error: Exception) -> None:
        """Log *error* unless it was the last one of *key*."""
        text = str(error)
        if self._reported.get(key) != text:
            self._reported[key] = text
            log.warning(event, extra={"job": key, "error": text})


def _fields(placement: Placement) -> dict[str, str]:
    return {
        "job": placement.job_id,
        "group": placement.group,
        "nodes": ",".join(placement.nodes),
        "devices": ",".join(map(str, placement.devices)),
        "lane": placement.lane,
    }
