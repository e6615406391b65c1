"""Sums of slices by member and day, kept as slices end, so that a summary of a million need not read them.

A day is one of the local calendar where the orchestrator is. Forgetting slices leaves their sums.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import sqlalchemy as sa

from slurm_interleave.client.core.gains import gain
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql import rows
from slurm_interleave.sql import slices as turns
from slurm_interleave.sql.engine import explained
from slurm_interleave.sql.slices import PAGE, SliceFilter
from slurm_interleave.sql.tables import days

_DAY_S = 86400
_LAST_MOMENT = 253e9  # in the year 9987, behind which not all systems have dates
_MOST_S = 1e12  # no sum leaves what a database can hold, whatever a turn says
_LEAST = frozenset({"requested", "granted"})
_MOST = frozenset({"ended", "max_wait_s"})
_SUMS = frozenset(
    {
        *("turns", "switches", "faults", "held_s", "waited_s", "switch_s", "snapshot_s", "restore_s"),
        *("overhead_s", "switch_bytes", "held_device_s", "waited_device_s"),
        *("exclusive_device_s", "occupied_device_s", "foretold", "expected_s", "missed_s"),
    }
)
_COLUMNS = [days.c[name] for name in rows.Day._fields]


def date_of(moment: float) -> int:
    """Return the local date of *moment* as a number: 20261129."""
    local = time.localtime(min(max(moment, 0.0), _LAST_MOMENT))
    return local.tm_year * 10000 + local.tm_mon * 100 + local.tm_mday


def beginning(date: int) -> float:
    """Return the moment at which the day *date* begins."""
    return time.mktime((date // 10000, date // 100 % 100, date % 100, 0, 0, 0, 0, 0, -1))


def day_of(row: rows.Slice) -> rows.Day:
    """Return the sums of one slice."""
    held = _seconds(row.ended - row.granted)
    waited = _seconds(row.granted - row.requested)
    return rows.Day(
        day=date_of(row.ended),
        job_id=row.job_id,
        group=row.group,
        epoch=row.epoch,
        role=row.role,
        uid=row.uid,
        user=row.user,
        account=row.account,
        partition=row.partition,
        name=row.name,
        backend=row.backend,
        nodes=row.nodes,
        devices=row.devices,
        phase=row.phase,
        state=row.state,
        partners=row.partners,
        comment=row.comment,
        requested=row.requested,
        granted=row.granted,
        ended=row.ended,
        turns=1,
        switches=int(row.switched),
        faults=int(row.state is SliceState.FAULTED),
        held_s=held,
        waited_s=waited,
        max_wait_s=waited,
        switch_s=_seconds(row.switch_s),
        snapshot_s=_seconds(row.snapshot_s),
        restore_s=_seconds(row.restore_s),
        overhead_s=_seconds(row.switch_s - row.snapshot_s - row.restore_s),
        switch_bytes=row.switch_bytes,
        **_of_devices(row, waited, held),
        **(_foretold(waited, _seconds(row.expected_s)) if row.expected_s >= 0 else {}),
    )


def _of_devices(row: rows.Slice, waited_s: float, held_s: float) -> dict[str, Any]:
    off_s = _seconds(row.off_s)
    device = gain(len(row.devices), off_s=off_s, waited_s=waited_s, held_s=held_s, share=row.share)
    return {
        "held_device_s": device.held,
        "waited_device_s": device.waited,
        "exclusive_device_s": device.exclusive,
        "occupied_device_s": device.occupied,
    }


def _foretold(waited_s: float, expected_s: float) -> dict[str, Any]:
    return {"foretold": 1, "expected_s": expected_s, "missed_s": abs(waited_s - expected_s)}


def _seconds(value: float) -> float:
    return min(max(value, 0.0), _MOST_S)


def added(column: sa.Column[Any], given: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return what a column of a day becomes, when the sums of a later slice are *given*."""
    if column.name in _SUMS:
        return column + given
    if column.name in _LEAST:
        return sa.case((given < column, given), else_=column)
    if column.name in _MOST:
        return sa.case((given > column, given), else_=column)
    return given


def summed(found: Iterable[rows.Slice]) -> list[rows.Day]:
    """Return the same as SQL keeps, of slices that were read."""
    sums: dict[tuple[int, str, str], rows.Day] = {}
    for row in found:
        new = day_of(row)
        key = (new.day, new.job_id, new.group)
        sums[key] = _plus(sums[key], new) if key in sums else new
    return list(sums.values())


def _plus(day: rows.Day, new: rows.Day) -> rows.Day:
    changes: dict[str, Any] = {name: getattr(day, name) + getattr(new, name) for name in _SUMS}
    changes |= {name: min(getattr(day, name), getattr(new, name)) for name in _LEAST}
    changes |= {name: max(getattr(day, name), getattr(new, name)) for name in _MOST}
    return new._replace(**changes)


def pages(engine: sa.Engine, wanted: SliceFilter) -> Iterator[Sequence[rows.Day]]:
    """Yield the sums, at most `PAGE` at a time, of the slices that *wanted* names.

    Whole days come as they are kept; of the rest, and where the sums do not know what is wanted, slices are
    read. A day may come in two parts.
    """
    found = _sums(engine, wanted)
    while page := list(islice(found, PAGE)):
        yield page


def _sums(engine: sa.Engine, wanted: SliceFilter) -> Iterator[rows.Day]:
    first = date_of(wanted.start) if wanted.start else 0
    if wanted.start > (beginning(first) if first else 0.0):
        first = date_of(beginning(first) + 1.5 * _DAY_S)
    last = date_of(wanted.end) if wanted.end else None
    if wanted.states or wanted.nodes or (last is not None and first >= last):
        yield from _read(engine, wanted)
        return
    if wanted.start and beginning(first) > wanted.start:
        yield from _read(engine, replace(wanted, ended_before=beginning(first)))
    yield from _kept(engine, wanted, first, last)
    if last is not None:
        # A day's first moment is of that day, and *start* is what comes before.
        yield from _read(engine, replace(wanted, start=math.nextafter(beginning(last), 0)))


def _read(engine: sa.Engine, wanted: SliceFilter) -> Iterator[rows.Day]:
    yield from summed(row for page in turns.pages(engine, wanted) for row in page)


def _kept(engine: sa.Engine, wanted: SliceFilter, first: int, last: int | None) -> Iterator[rows.Day]:
    keys = (days.c.day, days.c.job_id, days.c.group)
    query = sa.select(*_COLUMNS).where(days.c.day >= first, *turns.who(wanted, days)).order_by(*keys)
    if last is not None:
        query = query.where(days.c.day < last)
    here = query
    while True:
        with explained(engine), engine.connect() as db:
            page = [rows.Day._make(found) for found in db.execute(here.limit(PAGE))]
        yield from page
        if len(page) < PAGE:
            return
        here = query.where(_behind(page[-1]))


def _behind(day: rows.Day) -> sa.ColumnElement[bool]:
    """Return the condition of what comes behind *day*, in the form that goes along the key."""
    c = days.c
    same = sa.and_(c.job_id == day.job_id, c.group > day.group)
    return sa.and_(c.day >= day.day, sa.or_(c.day > day.day, c.job_id > day.job_id, same))
