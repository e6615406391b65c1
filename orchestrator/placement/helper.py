"""The co-allocation helper: gives held jobs their place and releases them.

Each step can be done twice (`placing.py`), so whatever a crash leaves half done, the next round completes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.orchestrator.pairing.advice import Advice
from slurm_interleave.orchestrator.placement.admin_comment import (
    HELD,
    RELEASED,
    AdminComment,
    format_comment,
    parse_comment,
)
from slurm_interleave.orchestrator.placement.audit import Audit
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from slurm_interleave.orchestrator.placement.explain import Seen
from slurm_interleave.orchestrator.placement.groups import Groups
from slurm_interleave.orchestrator.placement.lost import AwayNodes, closed
from slurm_interleave.orchestrator.placement.pairing import Pairing
from slurm_interleave.orchestrator.placement.placing import Placing, Seated, Todo, fields, gres_request
from slurm_interleave.orchestrator.placement.plan import Placement, plan
from slurm_interleave.orchestrator.placement.ports import Book, Fleet, Members, Slurm, Update
from slurm_interleave.orchestrator.placement.reports import Reports
from slurm_interleave.orchestrator.placement.shortage import shortages
from slurm_interleave.orchestrator.placement.squeue import SlurmJob
from slurm_interleave.orchestrator.placement.traits import Traits
from slurm_interleave.orchestrator.placement.waiting import Jobs, array_of, sharers, waiting, wish_of

log = logging.getLogger(__name__)
# How many waiting jobs are told in a round which rule keeps them out, so that this holds up no others.
_SAID_A_ROUND = 40


class PlacementHelper:
    """Looks at Slurm's queue each `poll_s` seconds, or at once after `nudge`."""

    def __init__(
        self,
        slurm: Slurm,
        book: Book,
        fleet: Fleet,
        members: Members,
        config: PlacementConfig,
        clock: Callable[[], float] = time.monotonic,
        over: Callable[[Placement, Sequence[SlurmJob]], None] = lambda _placement, _queue: None,
        advice: Callable[[], Advice] = Advice,
    ) -> None:
        """*over* is told of each job that is over, and of the queue in which it may still be.

        *advice* says who should share devices.
        """
        self._slurm, self._book, self._fleet, self._config = slurm, book, fleet, config
        self._members, self._over, self._advice = members, over, advice
        self._pairing = Pairing()
        self.seen: Seen | None = None
        """What the last round went by, to answer why."""
        self._nudged = asyncio.Event()
        self._reports = Reports()
        self._placing = Placing(slurm, book, fleet, self._reports)
        self._put_back: dict[str, object] = {}  # what the pins of moved jobs were
        self._away = AwayNodes(config.away_s, clock)
        self.audit = Audit(slurm, {lane.name for lane in config.lanes}, config.compare_s, clock)

    def nudge(self) -> None:
        """Look now: a job has ended or an agent has come."""
        self._nudged.set()

    async def run(self) -> None:
        """Place jobs until cancelled. Slurm's failures are logged, and tried again in the next round."""
        while True:
            self._nudged.clear()
            try:
                await self.round()
                self._reports.forget("squeue")
            except SlurmFailed as error:
                self._reports.failed("slurm.unreachable", "squeue", error)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), self._config.poll_s)

    async def round(self) -> None:
        """Bring book, agents and Slurm together once. Raises `SlurmFailed` if the queue cannot be read."""
        # The book first: what it holds was in the queue before, so what the queue lacks is over.
        book = {placement.job_id: placement for placement in await self._book.placements()}
        queue = await self._slurm.jobs()
        jobs = self._ours(queue)
        await self._ask_for(self._members.listed(queue))
        self._members.heard([job for job, _ in jobs.values()])
        for job_id in [job_id for job_id in book if job_id not in jobs]:
            self._over(book[job_id], queue)
            await self._drop(book.pop(job_id))
        with self._reports.of("gres"):
            await self.audit.look(jobs, book.values())
        await self._requeue_faulted(job for job, _ in jobs.values())
        states = await self._node_states(jobs)
        shut = closed(states)
        lost = shut | self._away_nodes(book)
        todo = Todo()
        for job_id, (job, comment) in jobs.items():
            if job_id in book and _waits(job, comment) and lost & set(book[job_id].nodes):
                await self._displace(job, comment, book)
            elif job_id in book:
                await self._repair(Seated(book[job_id], job, comment), frozenset(states), todo)
            else:
                await self._recover(job, comment, book)
        await self._place_waiting(jobs, book, lost, shut, todo)

    async def _ask_for(self, missing: Sequence[str]) -> None:
        """Ask for jobs that the queue lacks. Without an answer none ends, and the next round asks again."""
        try:
            for job_id in missing:
                self._members.answered(job_id, await self._slurm.runs(job_id))
            self._reports.forget("missing")
        except SlurmFailed as error:
            self._reports.failed("slurm.unreachable", "missing", error)

    async def _place_waiting(
        self,
        jobs: Jobs,
        book: Mapping[str, Placement],
        lost: frozenset[str],
        shut: frozenset[str],
        todo: Todo,
    ) -> None:
        pending = waiting(jobs, book, await self._traits(jobs))
        connected = self._fleet.nodes()
        nodes = [node for node in connected if node.name not in lost]
        memory, now = {node.name: node.host_bytes for node in nodes}, time.time()
        groups = Groups(self._config.groups, sharers(jobs, now), self._advice(), host_bytes=memory)
        groups.partners = await self._pairing.partners(groups, pending, book.values())
        lanes = self._config.lanes
        made = await asyncio.to_thread(plan, pending, list(book.values()), nodes, lanes, groups, shut)
        for placement in made:
            if forecast := groups.forecast(placement):
                log.info("placement.paired", extra={**fields(placement), "reason": forecast})
        todo.place += [Seated(p, *jobs[p.job_id]) for p in made if p.job_id in jobs]
        await self._placing.do(todo)
        await self._split([p.job_id for p in made if p.job_id not in jobs], jobs)
        served = {array_of(placement.job_id) for placement in made}
        short = await asyncio.to_thread(shortages, pending, nodes, lanes) if connected else {}
        refusals = {
            array_of(job.job_id): job.unmet or groups.refusal(job) or short.get(job.job_id, "")
            for job in pending
        }
        placed = (*book.values(), *made)
        self.seen = Seen(now, jobs, pending, placed, nodes, lanes, shut, groups, refusals)
        unsaid = [
            (refusals[job_id], *jobs[job_id])
            for job_id in refusals.keys() - served
            if jobs[job_id][1].refused(refusals[job_id]) != jobs[job_id][1]
        ]
        await self._say_why(unsaid[:_SAID_A_ROUND])

    async def _traits(self, jobs: Jobs) -> Mapping[str, Traits]:
        """Return what nodes have; it is asked only where a job that waits cares."""
        cares = any(_waits(job, comment) and wish_of(job, comment) for job, comment in jobs.values())
        return await self._slurm.traits() if cares else {}

    async def _split(self, names: Sequence[str], jobs: Jobs) -> None:
        """Make tasks of arrays jobs, as Slurm does at a change; the next round can place them."""
        texts = {name: format_comment(jobs[array_of(name)][1].refused("")) for name in names}
        asked = [(array_of(name), Update(name, text)) for name, text in texts.items()]
        if len(await self._placing.update(asked)) < len(asked):
            self.nudge()

    async def _say_why(self, unsaid: Sequence[tuple[str, SlurmJob, AdminComment]]) -> None:
        """Let held jobs say which rule of the site keeps them from a place."""
        asked = [
            (job.job_id, Update(job.name, format_comment(comment.refused(why))))
            for why, job, comment in unsaid
        ]
        failed = await self._placing.update(asked)
        for why, job, comment in unsaid:
            if why and job.name not in failed:
                said = {"job": job.job_id, "group": comment.group, "reason": comment.refused(why).why}
                log.info("placement.refused", extra=said)

    def _ours(self, queue: list[SlurmJob]) -> Jobs:
        """Return the interleaved jobs that are not over, in the order of their ids."""
        found = {}
        for job in sorted(queue, key=lambda job: (len(job.job_id), job.job_id)):
            with self._reports.of(job.job_id):
                comment = parse_comment(job.admin_comment)
                if comment and not job.finished:
                    found[job.job_id] = (job, comment)
        self._reports.forget_all_but({job.job_id for job in queue} | {"squeue", "gres", "missing"})
        return found

    async def _requeue_faulted(self, jobs: Iterable[SlurmJob]) -> None:
        """Let Slurm start those again that have lost their device state, so that their devices are free."""
        for job in jobs:
            reason = self._members.fault(job.job_id)
            if reason and job.has_processes and job.restarts < self._config.requeue_faulted:
                with self._reports.of(job.job_id):
                    await self._slurm.requeue(job.name)
                    log.warning("placement.requeued", extra={"job": job.job_id, "reason": reason})

    async def _drop(self, placement: Placement) -> None:
        await self._book.drop(placement.job_id)
        self._put_back.pop(placement.job_id, None)
        self._fleet.forget(placement.job_id)
        log.info("placement.dropped", extra={"job": placement.job_id, "group": placement.group})

    def _away_nodes(self, book: Mapping[str, Placement]) -> frozenset[str]:
        nodes = {node for placement in book.values() for node in placement.nodes}
        return self._away.update(nodes, [node.name for node in self._fleet.nodes()])

    async def _node_states(self, jobs: Jobs) -> Mapping[str, str]:
        """Return the states of all nodes; Slurm is asked only where a job waits."""
        waits = any(_waits(job, comment) for job, comment in jobs.values())
        return await self._slurm.node_states() if waits else {}

    async def _displace(self, job: SlurmJob, comment: AdminComment, book: dict[str, Placement]) -> None:
        """Take a job that has not started off a node that is lost; a later round places it again."""
        with self._reports.of(job.job_id):
            await self._hold(job, comment)
            await self._slurm.unpin(job.name)
            log.warning("placement.node_lost", extra=fields(book[job.job_id]))
            await self._drop(book.pop(job.job_id))

    async def _hold(self, job: SlurmJob, comment: AdminComment) -> None:
        """Hold a job until it has a new place. Noted first: a held job that says `released` is its user's."""
        if comment.state != HELD:
            text = format_comment(comment.held_again())
            for error in (await self._slurm.update([Update(job.name, text)])).values():
                raise error
        if not job.held:
            await self._slurm.hold(job.name)

    async def _repair(self, seated: Seated, every: frozenset[str], todo: Todo) -> None:
        """Find what a crash or a failure left undone: the job has its place but does not know.

        *every* is all nodes, where a job waits.
        """
        placement, job, comment = seated.placement, seated.job, seated.comment
        if job.startable and self._was_moved(job, placement, every):
            # By an administrator; its place is kept, and it gets its pin again in the next round.
            with self._reports.of(job.job_id):
                await self._hold(job, comment)
                log.warning("placement.held_again", extra=fields(placement))
        elif not job.held or comment.state == RELEASED:
            if comment != comment.released(placement):
                todo.note.append(seated)
        else:
            todo.place.append(replace(seated, pinned=comment == comment.placed(placement)))

    def _was_moved(self, job: SlurmJob, placement: Placement, every: frozenset[str]) -> bool:
        """Tell whether a job would start elsewhere; only once if its pin reads otherwise than it was set."""
        if not _moved(job, placement, every):
            self._put_back.pop(job.job_id, None)
            return False
        pin = (job.pinned, job.excluded, job.gres, job.max_nodes)
        before, self._put_back[job.job_id] = self._put_back.get(job.job_id), pin
        return before != pin

    async def _recover(self, job: SlurmJob, comment: AdminComment, book: dict[str, Placement]) -> None:
        """Treat a job that the book does not know: take over one that runs, hold one that could start."""
        if job.started and comment.state != HELD:
            placement = Placement(
                job.job_id, comment.group, comment.role, job.nodes, comment.indices, comment.lane
            )
            await self._book.record(placement)
            book[job.job_id] = placement
            log.warning("placement.adopted", extra=fields(placement))
        elif job.startable:
            # Requeued after its place was given back, or released by hand: it would start without a place.
            with self._reports.of(job.job_id):
                await self._hold(job, comment)
                log.info("placement.held_again", extra={"job": job.job_id, "group": comment.group})


def _waits(job: SlurmJob, comment: AdminComment) -> bool:
    """True for a job that could start or waits for its place; not for one that others hold."""
    return job.startable or (job.held and comment.state != RELEASED)


def _moved(job: SlurmJob, placement: Placement, every: frozenset[str]) -> bool:
    """True for a job that would start elsewhere than it is to; *every* is all nodes."""
    place, gres = frozenset(placement.nodes), frozenset(gres_request(placement).split(","))
    if job.leads:  # pinned by what it excludes
        elsewhere = (every | place).difference(job.excluded) != place
    else:
        elsewhere = job.pinned is not None and set(job.pinned) != place
    return elsewhere or job.gres not in (None, gres) or job.max_nodes not in (0, len(place))
