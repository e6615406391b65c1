"""Whether Slurm counts the shared GRES as the book does."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from slurm_interleave.orchestrator.placement.plan import Placement
from slurm_interleave.orchestrator.placement.ports import Slurm
from slurm_interleave.orchestrator.placement.waiting import Jobs

log = logging.getLogger(__name__)
Seat = tuple[str, str]  # a node, and a GRES with its type, as in ilva:g0
Counts = Mapping[Seat, int]


@dataclass(frozen=True)
class Difference:
    """What the book and Slurm say of one GRES of a node."""

    node: str
    gres: str
    booked: int
    used: int


class Differences:
    """Those that were there at two looks in a row: in between, jobs start and end."""

    def __init__(self) -> None:
        self._last: frozenset[Difference] = frozenset()
        self.known: frozenset[Difference] = frozenset()

    def update(self, low: Counts, high: Counts, used: Counts) -> tuple[list[Difference], list[Difference]]:
        """Return (the new ones, those that are gone).

        The book has *high* of a GRES where jobs that are completing, which Slurm may have taken out already,
        are counted, and *low* where they are not.
        """
        seen = frozenset(
            Difference(*seat, high.get(seat, 0), used.get(seat, 0))
            for seat in {*high, *used}
            if not low.get(seat, 0) <= used.get(seat, 0) <= high.get(seat, 0)
        )
        before, self.known, self._last = self.known, seen & self._last, seen
        return sorted(self.known - before, key=str), sorted(before - self.known, key=str)


class Audit:
    """Looks each *every_s* seconds, and logs what does not agree."""

    def __init__(
        self, slurm: Slurm, lanes: Iterable[str], every_s: float, clock: Callable[[], float]
    ) -> None:
        self._slurm, self._lanes, self._every_s, self._clock = slurm, frozenset(lanes), every_s, clock
        self._next = clock()
        self._differences = Differences()

    @property
    def differences(self) -> list[Difference]:
        """Return what does not agree now."""
        return sorted(self._differences.known, key=str)

    async def look(self, jobs: Jobs, book: Iterable[Placement]) -> None:
        """Compare, if it is time, *book* with what Slurm counts. Raises `SlurmFailed`."""
        if not self._every_s or self._clock() < self._next:
            return
        self._next = self._clock() + self._every_s
        running = [placement for placement in book if jobs[placement.job_id][0].started]
        low = seats(p for p in running if jobs[p.job_id][0].has_processes)
        used = {seat: count for seat, count in (await self._slurm.used()).items() if self._ours(seat)}
        fresh, gone = self._differences.update(low, seats(running), used)
        for one in fresh:
            log.warning("placement.books_differ", extra=vars(one))
        for one in gone:
            log.info("placement.books_agree", extra={"node": one.node, "gres": one.gres})

    def _ours(self, seat: Seat) -> bool:
        return seat[1].partition(":")[0] in self._lanes


def seats(placements: Iterable[Placement]) -> Counter[Seat]:
    """Return how much of each GRES the placements take."""
    return Counter(
        (node, f"{placement.lane}:g{device}")
        for placement in placements
        for node in placement.nodes
        for device in placement.devices
    )
