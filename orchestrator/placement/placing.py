"""Brings places to Slurm, a step for many jobs at a time: a start of scontrol costs as much as many changes.

Each step can be done twice, and the order is record, reserve, pin, release, note the release; who fails at
one is reported, and does not come to the next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from slurm_interleave.orchestrator.placement.admin_comment import AdminComment, format_comment
from slurm_interleave.orchestrator.placement.plan import Placement
from slurm_interleave.orchestrator.placement.ports import Book, Fleet, Slurm, Update
from slurm_interleave.orchestrator.placement.reports import Reports
from slurm_interleave.orchestrator.placement.squeue import SlurmJob

log = logging.getLogger(__name__)
_T = TypeVar("_T")
Asked = tuple[str, Update]  # the id of a job, or of the array whose task it is, and what is changed
# How many jobs go through a step at a time: the first are not to wait for all, and a step has a deadline.
_AT_ONCE = 40


@dataclass(frozen=True)
class Seated:
    """A job of Slurm's queue that has its place in the book, or is to have it."""

    placement: Placement
    job: SlurmJob
    comment: AdminComment
    pinned: bool = False
    """Slurm knows the place already."""


@dataclass
class Todo:
    """What a round has found to do."""

    place: list[Seated] = field(default_factory=list)
    """Those that wait, in the order in which they are released."""
    note: list[Seated] = field(default_factory=list)
    """Those that are released and do not say so."""


class Placing:
    """Takes placements to the book, to the agents and to Slurm."""

    def __init__(self, slurm: Slurm, book: Book, fleet: Fleet, reports: Reports) -> None:
        self._slurm, self._book, self._fleet, self._reports = slurm, book, fleet, reports

    async def do(self, todo: Todo) -> None:
        """Note the releases, then place the others."""
        await self._note_release(todo.note)
        for some in _portions(todo.place):
            await self._place(some)

    async def update(self, asked: Sequence[Asked]) -> frozenset[str]:
        """Make changes; return the names of those that failed, which are reported."""
        failed: set[str] = set()
        for some in _portions(asked):
            errors = await self._slurm.update([update for _, update in some])
            for job_id, update in some:
                with self._reports.of(job_id):
                    if update.name in errors:
                        failed.add(update.name)
                        raise errors[update.name]
        return frozenset(failed)

    async def _place(self, seated: Sequence[Seated]) -> None:
        for one in seated:
            if not one.pinned:
                await self._book.record(one.placement)
            self._fleet.reserve(one.placement)
        failed = await self.update([_pin(one) for one in seated if not one.pinned])
        await self._release([one for one in seated if one.job.name not in failed])

    async def _release(self, seated: Sequence[Seated]) -> None:
        errors = await self._slurm.release([one.job.name for one in seated]) if seated else {}
        released = []
        for one in seated:
            with self._reports.of(one.job.job_id):
                if one.job.name in errors:
                    raise errors[one.job.name]
                log.info("placement.released", extra=fields(one.placement))
                released.append(one)
        await self._note_release(released)

    async def _note_release(self, seated: Sequence[Seated]) -> None:
        texts = ((one, format_comment(one.comment.released(one.placement))) for one in seated)
        await self.update([(one.job.job_id, Update(one.job.name, text)) for one, text in texts])


def gres_request(placement: Placement) -> str:
    """Return what the job asks of Slurm on each node, such as `ilva:g0:1,ilva:g1:1`."""
    return ",".join(f"{placement.lane}:g{device}:1" for device in placement.devices)


def fields(placement: Placement) -> dict[str, str]:
    """Return what the log says of a placement."""
    return {
        "job": placement.job_id,
        "group": placement.group,
        "nodes": ",".join(placement.nodes),
        "devices": ",".join(map(str, placement.devices)),
        "lane": placement.lane,
    }


def _pin(one: Seated) -> Asked:
    text, nodes = format_comment(one.comment.placed(one.placement)), one.placement.nodes
    count = 0 if one.job.max_nodes in (0, len(nodes)) else len(nodes)
    return one.job.job_id, Update(one.job.name, text, nodes, gres_request(one.placement), count)


def _portions(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]
