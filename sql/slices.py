"""Slices for reports, page by page, each page along an index and in its own transaction; and their end.

So a report of any length holds one page in memory and no lock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql import rows
from slurm_interleave.sql.engine import explained, writing
from slurm_interleave.sql.tables import slices

PAGE = 500
# Deleted in one transaction: few enough that the orchestrator's own writes wait some milliseconds.
CHUNK = 200

_COLUMNS = [slices.c[field.name] for field in fields(rows.Slice)]
Order = tuple[sa.Column[Any], ...]
BY_GRANT: Order = (slices.c.epoch,)
BY_END: Order = (slices.c.ended, slices.c.epoch)


@dataclass(frozen=True)
class SliceFilter:
    """Which slices a report wants; an empty field means all. Times are seconds since the Unix epoch."""

    job_ids: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    start: float = 0.0  # slices that ended after this
    end: float = 0.0  # slices that were asked for before this
    ended_before: float = 0.0
    uid: int | None = None  # of this user alone

    def matches(self, row: rows.Slice) -> bool:
        """Tell the same of a slice that is not in SQL yet."""
        lists = (
            (self.job_ids, row.job_id),
            (self.users, row.user),
            (self.groups, row.group),
            (self.accounts, row.account),
            (self.partitions, row.partition),
        )
        return (
            all(not wanted or value in wanted for wanted, value in lists)
            and self.on_a_node(row)
            and (not self.states or row.state.value in self.states)
            and (not row.ended or row.ended > self.start)
            and (not self.end or row.requested < self.end)
            and self.uid in (None, row.uid)
        )

    def on_a_node(self, row: rows.Slice) -> bool:
        """Tell whether *row* has one of the nodes."""
        return not self.nodes or not set(self.nodes).isdisjoint(row.nodes)


def pages(engine: sa.Engine, wanted: SliceFilter) -> Iterator[Sequence[rows.Slice]]:
    """Yield the ended slices that *wanted* names, at most `PAGE` at a time.

    Those of named jobs come in the order of their grants, others in the order of their ends. The iterator may
    be asked from any thread, one at a time, and may be left at any moment.
    """
    order, queries = plan(wanted)
    size = max(PAGE // len(queries), 10)
    streams = [_stream(engine, query, order, size) for query in queries]
    merged = heapq.merge(*streams, key=attrgetter(*(column.name for column in order)))
    found = filter(wanted.on_a_node, merged)
    while page := list(islice(found, PAGE)):
        yield page


def plan(wanted: SliceFilter) -> tuple[Order, list[sa.Select[Any]]]:
    """Return the order of the report and its queries: one for each name, so that each runs along an index."""
    query = _conditions(wanted)
    for names, column, order in (
        (wanted.job_ids, slices.c.job_id, BY_GRANT),
        (wanted.groups, slices.c.group, BY_END),
        (wanted.users, slices.c.user, BY_END),
    ):
        if names:
            return order, [query.where(column == name).order_by(*order) for name in dict.fromkeys(names)]
    return BY_END, [query.order_by(*BY_END)]


def after(order: Order, last: rows.Slice) -> sa.ColumnElement[bool]:
    """Return the condition of a slice that comes behind *last* in *order*."""
    if order is BY_GRANT:
        return slices.c.epoch > last.epoch
    # In this form all three databases begin at the right place of the index.
    same_or_later = slices.c.ended >= last.ended
    return sa.and_(same_or_later, sa.or_(slices.c.ended > last.ended, slices.c.epoch > last.epoch))


def count_before(engine: sa.Engine, moment: float) -> int:
    """Return how many slices ended before *moment*."""
    with explained(engine), engine.connect() as db:
        return int(db.scalar(sa.select(sa.func.count()).where(slices.c.ended < moment)) or 0)


def oldest(engine: sa.Engine, moment: float, count: int) -> list[rows.Slice]:
    """Return the *count* slices that ended first, of those that ended before *moment*."""
    query = sa.select(*_COLUMNS).where(slices.c.ended < moment).order_by(*BY_END).limit(count)
    with explained(engine), engine.connect() as db:
        return [rows.Slice(*found) for found in db.execute(query)]


def prune(engine: sa.Engine, moment: float) -> Iterator[int]:
    """Delete the slices that ended before *moment*, `CHUNK` in a transaction; yield how many each time.

    Nothing is locked between two steps.
    """
    oldest = (
        sa.select(slices.c.epoch).where(slices.c.ended < moment).order_by(slices.c.ended, slices.c.epoch)
    ).limit(CHUNK)
    while True:
        with explained(engine):
            with engine.connect() as db:
                epochs = db.scalars(oldest).all()
            if epochs:
                with writing(engine).begin() as db:
                    db.execute(sa.delete(slices).where(slices.c.epoch.in_(epochs)))
        if epochs:
            yield len(epochs)
        if len(epochs) < CHUNK:
            return


def who(wanted: SliceFilter, table: sa.Table) -> Iterator[sa.ColumnElement[bool]]:
    """Yield the conditions on whose slices, or days, *table* is to give."""
    for names, column in (
        (wanted.job_ids, table.c.job_id),
        (wanted.users, table.c.user),
        (wanted.groups, table.c.group),
        (wanted.accounts, table.c.account),
        (wanted.partitions, table.c.partition),
    ):
        if names:
            yield column.in_(names)
    if wanted.uid is not None:
        yield table.c.uid == wanted.uid


def _conditions(wanted: SliceFilter) -> sa.Select[Any]:
    query = sa.select(*_COLUMNS).where(*who(wanted, slices))
    if wanted.start:
        query = query.where(slices.c.ended > wanted.start)
    if wanted.end:
        query = query.where(slices.c.requested < wanted.end)
    if wanted.ended_before:
        query = query.where(slices.c.ended < wanted.ended_before)
    if wanted.states:
        known = [SliceState(word) for word in wanted.states if word in SliceState.__members__]
        query = query.where(slices.c.state.in_(known))
    return query


def _stream(engine: sa.Engine, query: sa.Select[Any], order: Order, size: int) -> Iterator[rows.Slice]:
    here = query
    while True:
        with explained(engine), engine.connect() as db:
            page = [rows.Slice(*found) for found in db.execute(here.limit(size))]
        yield from page
        if len(page) < size:
            return
        here = query.where(after(order, page[-1]))
