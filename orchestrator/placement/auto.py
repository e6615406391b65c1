"""Into which group a job comes that left that open. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurm_interleave.orchestrator.pairing.advice import AUTO, Worth
from slurm_interleave.orchestrator.placement.groups import Groups

if TYPE_CHECKING:
    from slurm_interleave.orchestrator.placement.plan import Pending, Placement

# How many groups with a seat are rated for a job that is nobody's best partner: a thousand such may wait.
RATED = 24


@dataclass
class Auto:
    """Looks for groups while seats are only taken: where a job finds none, the next like it finds none."""

    groups: Groups
    join: Callable[[Pending], Placement | None]
    """Finds a place that is free now on the devices of the job's group."""
    _full: set[tuple[str, str, int, int]] = field(default_factory=set)

    def options(self, job: Pending) -> Iterator[Pending]:
        """Yield *job* in the groups that it may be in, the best first.

        Best is where all who wait are best off, then what saves the most with it, then a group of its own.
        """
        own, best = f"{AUTO}-{job.job_id}", self.groups.partners.get(job.job_id, "")
        if best == own or (best and self._saved(job, best, self.place(job, best), []) is not None):
            yield replace(job, group=best)
        bad: list[str] = []
        rated = ((self._saved(job, name, place, bad), name) for name, place in self.with_seats(job))
        good = [(saved, name) for saved, name in rated if saved is not None]
        for _, name in sorted(good, key=lambda one: -one[0]):
            yield replace(job, group=name)
        if best != own:
            yield replace(job, group=own)
        self.groups.no_good(job, bad)

    def with_seats(self, job: Pending) -> Iterator[tuple[str, Placement]]:
        """Yield the groups that are rated for *job*, each with its place there."""
        found = 0
        for name in self.groups.found():
            if found < RATED and (name, job.role, job.nodes, job.devices) not in self._full:
                place = self.place(job, name)
                if place is not None:
                    found += 1
                    yield name, place

    def place(self, job: Pending, name: str) -> Placement | None:
        """Return a place that is free now for *job* in a group."""
        place = self.join(replace(job, group=name))
        if place is None and not job.choosy:
            self._full.add((name, job.role, job.nodes, job.devices))
        return place

    def _saved(self, job: Pending, name: str, place: Placement | None, bad: list[str]) -> float | None:
        """Return what the group saves with *job*; None: it has no seat, or is no good, as *bad* is told."""
        if place is None:
            return None
        worth = self.worth(job, name, place)
        if worth.why:
            bad.append(f"{name}: {worth.why}")
            return None
        return worth.saved

    def worth(self, job: Pending, name: str, place: Placement) -> Worth:
        """Return what becomes of a group with *job*, or why it may not come in."""
        member = replace(job, group=name)
        why = self.groups.refusal(member)
        return Worth(why=why) if why else self.groups.worth(member, place)
