"""Reads and writes of the rows. One transaction a batch; one conditional UPDATE decides whether it counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from slurm_interleave.client.core.errors import ConfigError, Replaced
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql import migrate, rows
from slurm_interleave.sql.tables import TABLES, instance, slices, values

RowId = tuple[type[rows.Row], tuple[Any, ...]]
RowType = TypeVar("RowType", bound=rows.Row)
PAGE = 500


def row_id(row: rows.Row) -> RowId:
    """Return what identifies *row* among all rows."""
    return type(row), tuple(getattr(row, name) for name in row.KEY)


@dataclass(frozen=True)
class SliceFilter:
    """Which slices a report wants; an empty field means all. Times are seconds since the Unix epoch."""

    job_ids: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    start: float = 0.0  # slices that ended after this
    end: float = 0.0  # slices that were asked for before this
    uid: int | None = None  # of this user alone

    def matches(self, row: rows.Slice) -> bool:
        """Tell the same of a slice that is not in SQL yet."""
        lists = ((self.job_ids, row.job_id), (self.users, row.user), (self.groups, row.group))
        return (
            all(not wanted or value in wanted for wanted, value in lists)
            and (not self.states or row.state.value in self.states)
            and (not row.ended or row.ended > self.start)
            and (not self.end or row.requested < self.end)
            and self.uid in (None, row.uid)
        )


class Store:
    """The orchestrator's memory. Not for more than one thread at a time.

    The newest instance alone may write: starting one raises the generation, and each batch of an older one
    raises `Replaced` and changes nothing.
    """

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        migrate.upgrade(self._engine)
        self.generation, self.epoch = self._take_over()

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def _take_over(self) -> tuple[int, int]:
        with self._engine.begin() as db:
            raised = db.execute(sa.update(instance).values(generation=instance.c.generation + 1))
            if raised.rowcount != 1:
                db.execute(sa.insert(instance).values(id=1, generation=1, epoch=0))
            generation, epoch = db.execute(sa.select(instance.c.generation, instance.c.epoch)).one()
        return int(generation), int(epoch)

    def all(self, kind: type[RowType]) -> list[RowType]:
        """Return all rows of a kind."""
        with self._engine.connect() as db:
            return [kind(**found) for found in db.execute(sa.select(TABLES[kind])).mappings()]

    def last_yields(self) -> dict[rows.Key, int]:
        """Return the epoch of the last lease that each live member yielded."""
        members = TABLES[rows.Member]
        newest = (
            sa.select(slices.c.job_id, slices.c.group, sa.func.max(slices.c.epoch))
            .join(members, sa.and_(members.c.job_id == slices.c.job_id, members.c.group == slices.c.group))
            .where(slices.c.state == SliceState.YIELDED)
            .group_by(slices.c.job_id, slices.c.group)
        )
        with self._engine.connect() as db:
            return {rows.Key(job, group): int(epoch) for job, group, epoch in db.execute(newest)}

    def record(self, changes: Mapping[RowId, rows.Row | None], epoch: int) -> None:
        """Write *changes* (a row, or None to forget it) and move the epoch to *epoch*, all or nothing.

        Raises `Replaced` if a newer instance has started.
        """
        with self._engine.begin() as db:
            kept = db.execute(
                sa.update(instance)
                .where(instance.c.generation == self.generation, instance.c.epoch == self.epoch)
                .values(epoch=epoch)
            )
            if kept.rowcount != 1:
                raise Replaced("another orchestrator has started on this database; this one stops")
            for kind, table in TABLES.items():
                self._write(db, table, {key: row for (k, key), row in changes.items() if k is kind})
        self.epoch = epoch

    @staticmethod
    def _write(
        db: sa.Connection, table: sa.Table, changes: Mapping[tuple[Any, ...], rows.Row | None]
    ) -> None:
        if not changes:
            return
        columns = list(table.primary_key.columns)
        same_key = sa.and_(*(column == sa.bindparam(f"k{i}") for i, column in enumerate(columns)))
        keys = [{f"k{i}": value for i, value in enumerate(key)} for key in changes]
        db.execute(sa.delete(table).where(same_key), keys)
        new = [values(row) for row in changes.values() if row is not None]
        if new:
            db.execute(sa.insert(table), new)

    def slices(self, wanted: SliceFilter) -> Iterator[Sequence[rows.Slice]]:
        """Return the ended slices that *wanted* names, in the order of their grants, a page at a time."""
        query, last = _query(wanted), 0
        while True:
            with self._engine.connect() as db:
                found = db.execute(query.where(slices.c.epoch > last)).mappings()
                page = [rows.Slice(**row) for row in found]
            if page:
                yield page
            if len(page) < PAGE:
                return
            last = page[-1].epoch


def _query(wanted: SliceFilter) -> sa.Select[Any]:
    query = sa.select(slices).where(slices.c.ended > wanted.start).order_by(slices.c.epoch).limit(PAGE)
    for names, column in (
        (wanted.job_ids, slices.c.job_id),
        (wanted.users, slices.c.user),
        (wanted.groups, slices.c.group),
    ):
        if names:
            query = query.where(column.in_(names))
    if wanted.states:
        known = [SliceState(word) for word in wanted.states if word in SliceState.__members__]
        query = query.where(slices.c.state.in_(known))
    if wanted.uid is not None:
        query = query.where(slices.c.uid == wanted.uid)
    return query.where(slices.c.requested < wanted.end) if wanted.end else query


def _engine(url: str) -> sa.Engine:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(
            f"database = {url!r} is no database URL; an example is sqlite:////var/lib/interleave/orchestrator.db"
        ) from None
    sqlite = parsed.get_backend_name() == "sqlite"
    try:
        if sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(parsed, pool_pre_ping=not sqlite)
        if sqlite:
            sa.event.listen(engine, "connect", _durable_sqlite)
        with engine.connect():
            return engine
    except (DBAPIError, OSError, ImportError, sa.exc.NoSuchModuleError) as error:
        raise ConfigError(f"database {parsed.render_as_string(hide_password=True)}: {error}") from error


def _durable_sqlite(connection: Any, _record: object) -> None:
    """A commit is on disk before it is answered, and readers do not stop the writer."""
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
