"""What SQL would hold: the rows of all commands so far, and the promises that they must keep."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.core.commands import Advance, Command, Drop, Put
from slurm_interleave.orchestrator.core.remembered import Remembered
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import RowId, RowType, row_id


class Memory:
    """Rows by their id."""

    def __init__(self) -> None:
        self.epoch = 0
        self.rows: dict[RowId, rows.Row] = {}
        self.slices: dict[int, rows.Slice] = {}
        self.granted: set[int] = set()

    def record(self, commands: Iterable[Command]) -> None:
        """Write what is to be remembered."""
        for command in commands:
            match command:
                case Advance(before=before, after=after):
                    assert before == self.epoch
                    assert after > before
                    self.epoch = after
                case Put(row=rows.Slice() as ended):
                    assert ended.epoch not in self.slices, "one lease, one slice"
                    assert ended.epoch in self.granted
                    self.slices[ended.epoch] = ended
                case Put(row=row):
                    if isinstance(row, rows.Lease) and row_id(row) not in self.rows:
                        assert row.epoch not in self.granted, "an epoch is granted once"
                        self.granted.add(row.epoch)
                    self.rows[row_id(row)] = row
                case Drop(row=row):
                    del self.rows[row_id(row)]

    def all(self, kind: type[RowType]) -> tuple[RowType, ...]:
        """Return all rows of a kind."""
        return tuple(row for row in self.rows.values() if isinstance(row, kind))

    def remembered(self) -> Remembered:
        """Return what a restart finds."""
        yielded: dict[rows.Key, int] = {}
        members = {rows.Key(member.job_id, member.group) for member in self.all(rows.Member)}
        for epoch, ended in self.slices.items():
            key = rows.Key(ended.job_id, ended.group)
            if ended.state is SliceState.YIELDED and key in members:
                yielded[key] = max(epoch, yielded.get(key, 0))
        return Remembered(
            epoch=self.epoch,
            members=self.all(rows.Member),
            parts=self.all(rows.Part),
            waiters=self.all(rows.Waiter),
            leases=self.all(rows.Lease),
            yielded=yielded,
        )
