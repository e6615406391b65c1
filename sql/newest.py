"""The newest turns of each workload: ranked by the database, and read some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from slurm_interleave.sql import rows
from slurm_interleave.sql.engine import explained
from slurm_interleave.sql.slices import BY_END, PAGE
from slurm_interleave.sql.tables import slices

_COLUMNS = [slices.c[field.name] for field in fields(rows.Slice)]


def newest_pages(engine: sa.Engine, start: float, each: int, most: int) -> Iterator[Sequence[rows.Slice]]:
    """Yield the newest *each* slices of every workload that ended after *start*, *most* in all: the newest.

    They come in the order of their ends, at most `PAGE` at a time, each page in its own transaction. *start*
    is in seconds since the Unix epoch. The iterator may be asked from any thread, one at a time.
    """
    with explained(engine), engine.connect() as db:
        epochs = db.scalars(newest_query(start, each, most)).all()[::-1]
    for begin in range(0, len(epochs), PAGE):
        wanted = slices.c.epoch.in_(epochs[begin : begin + PAGE])
        with explained(engine), engine.connect() as db:
            found = db.execute(sa.select(*_COLUMNS).where(wanted).order_by(*BY_END)).all()
        yield [rows.Slice(*row) for row in found]


def newest_query(start: float, each: int, most: int) -> sa.Select[Any]:
    """Return the query of the epochs of those slices, the newest first.

    A workload here is what pairing's `workload_of` gives one name.
    """
    newer = [column.desc() for column in BY_END]
    place = sa.func.row_number().over(partition_by=_workload(), order_by=newer).label("place")
    ranked = sa.select(*BY_END, place).where(slices.c.ended > start).subquery()
    last = [ranked.c[column.name].desc() for column in BY_END]
    return sa.select(ranked.c.epoch).where(ranked.c.place <= each).order_by(*last).limit(most)


def _workload() -> list[sa.ColumnElement[Any]]:
    """Return what tells workloads apart: what their users call them, or else all the rest."""
    named = slices.c.profile != ""
    job = sa.case((slices.c.name != "", slices.c.name), else_=slices.c.job_id)
    rest = (slices.c.account, job, slices.c.role, _commas(slices.c.nodes), _commas(slices.c.devices))
    return [slices.c.profile, *(sa.case((named, sa.null()), else_=part) for part in rest)]


def _commas(words: sa.Column[Any]) -> sa.ColumnElement[int]:
    text = sa.type_coerce(words, sa.Text)
    return sa.func.length(text) - sa.func.length(sa.func.replace(text, ",", ""))
