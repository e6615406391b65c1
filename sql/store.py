"""The orchestrator's memory. One transaction a batch; one conditional UPDATE decides whether it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from slurm_interleave.client.core.errors import ConfigError, DatabaseFailed, Replaced
from slurm_interleave.client.core.states import YIELDS
from slurm_interleave.sql import migrate, rows
from slurm_interleave.sql import slices as reports
from slurm_interleave.sql.days import added, day_of, pages
from slurm_interleave.sql.engine import explained, failures, fill_log, name, open_engine, reason, writing
from slurm_interleave.sql.newest import newest_pages
from slurm_interleave.sql.slices import PAGE, SliceFilter
from slurm_interleave.sql.statements import Fence, RowType, TableStatements, all_rows
from slurm_interleave.sql.tables import TABLES, days, instance, members, slices
from slurm_interleave.sql.writer import Locked, Writer

__all__ = ["PAGE", "Locked", "RowId", "SliceFilter", "Store", "last_yields_query", "row_id"]

RowId = tuple[type[rows.Row], tuple[Any, ...]]


def _key(names: tuple[str, ...]) -> Callable[[rows.Row], tuple[Any, ...]]:
    one = attrgetter(*names)  # of a single name it gives no tuple
    return one if len(names) > 1 else lambda row: (one(row),)


_KEYS = {kind: _key(kind.KEY) for kind in TABLES}


def row_id(row: rows.Row) -> RowId:
    """Return what identifies *row* among all rows."""
    kind = type(row)
    return kind, _KEYS[kind](row)


class Store:
    """The orchestrator's memory. `record` is for one thread at a time; reads may run beside it in others.

    The newest instance alone may write: starting one raises the generation, and each batch of an older one
    raises `Replaced` and changes nothing.
    """

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        try:
            with explained(self._engine):
                _bring_up(self._engine, url)
                self.generation, self.epoch = _take_over(self._engine)
                self._writer = Writer(self._engine)
                fill_log(self._engine)
        except BaseException:
            self._engine.dispose()
            raise
        self._fence = Fence(self._engine.dialect)
        self._tables = {kind: TableStatements(table, self._engine.dialect) for kind, table in TABLES.items()}
        self._days = TableStatements(days, self._engine.dialect, added)
        self._failures = failures(self._engine)
        self._failed: DatabaseFailed | None = None
        self.embedded = self._engine.dialect.name == "sqlite"

    def close(self) -> None:
        """Close the database."""
        self._writer.close()
        self._engine.dispose()

    def all(self, kind: type[RowType]) -> list[RowType]:
        """Return all rows of a kind."""
        with explained(self._engine), self._engine.connect() as db:
            return all_rows(db, kind)

    def last_yields(self) -> dict[rows.Key, int]:
        """Return the epoch of the last lease that each live member yielded."""
        with explained(self._engine), self._engine.connect() as db:
            found = db.execute(last_yields_query()).all()
        return {rows.Key(job, group): int(epoch) for job, group, epoch in found if epoch is not None}

    def record(self, changes: Mapping[RowId, rows.Row | None], epoch: int, *, may_wait: bool = True) -> None:
        """Write *changes* (a row, or None to forget it) and move the epoch to *epoch*, all or nothing.

        Unless it *may_wait* for another program that writes to the same SQLite file, it raises `Locked`, and
        nothing has changed. Raises `Replaced` if a newer instance has started, and `DatabaseFailed` if it is
        not known whether the batch counts; after that nothing more is written.
        """
        if self._failed is not None:
            raise self._failed
        fence = self._fence.statement(self.generation, before=self.epoch, after=epoch)
        rest = [
            self._tables[kind].drop(key) if row is None else self._tables[kind].put(row)
            for (kind, key), row in changes.items()
        ]
        rest += [self._days.put(day_of(row)) for row in changes.values() if isinstance(row, rows.Slice)]
        try:
            kept = self._writer.write(fence, rest, may_wait=may_wait)
        except self._failures as error:
            url = self._engine.url
            self._failed = DatabaseFailed(
                f"database {name(url)}: {reason(url, error)}; what is not recorded was not answered: "
                "start again when the database is back"
            )
            raise self._failed from error
        if not kept:
            raise Replaced("another orchestrator has started on this database; this one stops")
        self.epoch = epoch

    def slices(self, wanted: SliceFilter) -> Iterator[Sequence[rows.Slice]]:
        """Yield pages of the ended slices that *wanted* names; see `slices.pages`."""
        return reports.pages(self._engine, wanted)

    def newest(self, start: float, each: int, most: int) -> Iterator[Sequence[rows.Slice]]:
        """Yield pages of the newest slices of each workload; see `newest.newest_pages`."""
        return newest_pages(self._engine, start, each, most)

    def days(self, wanted: SliceFilter) -> Iterator[Sequence[rows.Day]]:
        """Yield pages of the sums, by member and day, of the same slices; see `days.pages`."""
        return pages(self._engine, wanted)

    def oldest(self, before: float, count: int) -> list[rows.Slice]:
        """Return the *count* slices that ended first, of those that ended before a moment."""
        return reports.oldest(self._engine, before, count)

    def prune(self, before: float) -> Iterator[int]:
        """Delete the slices that ended before a moment, some at each step; see `slices.prune`."""
        return reports.prune(self._engine, before)


def last_yields_query() -> sa.Select[Any]:
    """Return the query of `Store.last_yields`: each live member and an epoch or NULL."""
    newest = (
        sa.select(slices.c.epoch)
        .where(
            slices.c.job_id == members.c.job_id,
            slices.c.group == members.c.group,
            slices.c.state.in_(YIELDS),
        )
        .order_by(slices.c.epoch.desc())
        .limit(1)
    )
    return sa.select(members.c.job_id, members.c.group, newest.scalar_subquery())


def _bring_up(engine: sa.Engine, url: str) -> None:
    with engine.connect() as db:
        if migrate.revision(db) == migrate.HEAD:
            return
    if engine.dialect.name == "sqlite":  # one that lives in memory would be another one in another engine
        migrate.upgrade(engine)
        return
    patient = open_engine(url, patient=True)
    try:
        migrate.upgrade(patient)
    finally:
        patient.dispose()


def _take_over(engine: sa.Engine) -> tuple[int, int]:
    with writing(engine).begin() as db:
        raised = db.execute(sa.update(instance).values(generation=instance.c.generation + 1))
        if raised.rowcount != 1:
            raise ConfigError(
                f"database {name(engine.url)}: table instance has {raised.rowcount} rows and must have one; "
                "restore a backup, or begin with an empty database"
            )
        generation, epoch = db.execute(sa.select(instance.c.generation, instance.c.epoch)).one()
    return int(generation), int(epoch)
