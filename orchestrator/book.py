"""The book of placement: which job has which devices, in memory and in SQL."""

from __future__ import annotations

from dataclasses import asdict

from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core.commands import Drop, Put
from slurm_interleave.orchestrator.placement.plan import Placement
from slurm_interleave.sql.rows import Reservation


class Reservations:
    """Implements `placement.ports.Book` on the arbiter's memory."""

    def __init__(self, arbiter: Arbiter, remembered: list[Reservation]) -> None:
        self._arbiter = arbiter
        self._rows = {row.job_id: row for row in remembered}

    async def placements(self) -> list[Placement]:
        """Return all, in the order in which they were made; after a restart by job id."""
        return [Placement(**asdict(row)) for row in self._rows.values()]

    async def record(self, placement: Placement) -> None:
        """Keep *placement* in place of an earlier one of its job."""
        row = Reservation(**asdict(placement))
        self._rows[row.job_id] = row
        await self._arbiter.remember([Put(row)])

    async def drop(self, job_id: str) -> None:
        """Forget the placement of a job."""
        row = self._rows.pop(job_id, None)
        if row is not None:
            await self._arbiter.remember([Drop(row)])

    def of(self, job_id: str, node: str) -> Placement | None:
        """Return the placement of a job if it has a part on *node*."""
        row = self._rows.get(job_id)
        return Placement(**asdict(row)) if row is not None and node in row.nodes else None

    async def sure_of(self, job_id: str, node: str) -> Placement | None:
        """The same, written once more first: an orchestrator that was replaced may know an older one."""
        row = self._rows.get(job_id)
        if row is not None:
            await self._arbiter.remember([Put(row)])
        return self.of(job_id, node)

    def on_node(self, node: str) -> list[Placement]:
        """Return the placements that *node* has a part in."""
        return [Placement(**asdict(row)) for row in self._rows.values() if node in row.nodes]
