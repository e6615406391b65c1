"""Recorded runs as jobs: each keeps its own order of holds and its own times between them.

The format is that of the runs published with llm-d-rl-time-slicing: a JSON object with
`timesliced.holds`, a list of `{job, pool, acquired_s, waited_s, restore_s, yielded_s, snapshot_s}`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.orchestrator.simulator.program import Acquire, Cost, Job, Place, Program, Until, Yield

_FIELDS = ("acquired_s", "waited_s", "restore_s", "yielded_s", "snapshot_s")
# A job that asks again sooner than this had its next batch ready when it yielded.
_AT_ONCE_S = 3.0


@dataclass(frozen=True)
class Hold:
    """One hold of a record, in seconds: *asked* to *granted* it waited, at *yielded* it called yield.

    *resumed* is when the job went on after that call, which is later where the call lasts for the snapshot.
    """

    job: str
    pool: str
    asked: float
    granted: float
    yielded: float
    resumed: float
    cost: Cost


def holds_of(record: Mapping[str, Any]) -> list[Hold]:
    """Return the holds of a record, in the order of their grants. Raises `BadArgument`.

    Two things are taken from the figures, since recorders differ. Where another job got a pool sooner after
    a yield than the snapshot takes, the recorded yield is the end of a call that lasted for the snapshot.
    And where a restore took longer than the wait that it would be a part of, waits do not count restores.
    """
    try:
        rows = [_row(row) for row in record["timesliced"]["holds"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BadArgument(f"not a record of holds: {error!r}; docs/simulate.md shows the format") from error
    if not rows:
        raise BadArgument("the record has no holds")
    rows.sort(key=lambda row: row.granted)
    blocking, apart = _yields_last(rows), any(row.cost.restore_s > row.granted - row.asked for row in rows)
    return [
        replace(
            row,
            asked=row.asked - (row.cost.restore_s if apart else 0.0),
            yielded=row.yielded - (row.cost.snapshot_s if blocking else 0.0),
        )
        for row in rows
    ]


def _row(row: Mapping[str, Any]) -> Hold:
    granted, waited, restore, yielded, snapshot = times = [float(row[name]) for name in _FIELDS]
    if not all(map(math.isfinite, times)):
        raise ValueError(f"{times} are not all numbers of seconds")
    cost = Cost(snapshot, restore)
    return Hold(str(row["job"]), str(row["pool"]), granted - waited, granted, yielded, yielded, cost)


def _yields_last(rows: Sequence[Hold]) -> bool:
    last: dict[str, Hold] = {}
    for row in rows:
        before = last.get(row.pool)
        if before and before.job != row.job and row.granted - before.yielded < before.cost.snapshot_s:
            return True
        last[row.pool] = row
    return False


def jobs_of(
    holds: Iterable[Hold],
    places: Mapping[str, Place] | None = None,
    *,
    asynchronous: bool = False,
    cost: Cost | None = None,
) -> list[Job]:
    """Return the jobs of a record; *cost*: of each move, in place of the recorded ones.

    *places*: where each pool is; by default each is a device of its own. In an *asynchronous* job the
    rollouts go on while its trainer waits: its batches come when they came in the record, however late the
    turns before were.
    """
    jobs: dict[str, list[Hold]] = {}
    for hold in holds:
        jobs.setdefault(hold.job, []).append(hold)
    pools = places or {hold.pool: Place((f"node-{hold.pool}",)) for own in jobs.values() for hold in own}
    begin = min(hold.asked for own in jobs.values() for hold in own)
    make = _buffered if asynchronous else _chained
    return [
        Job(
            name,
            {pool: pools[pool] for pool in dict.fromkeys(hold.pool for hold in own)},
            make(own, begin, cost),
            start_s=own[0].asked - begin,
        )
        for name, own in sorted(jobs.items())
    ]


def _cost_of(hold: Hold, following: Hold | None, cost: Cost | None) -> Cost:
    """What the context costs after *hold*: its snapshot, and the restore before the following hold."""
    if cost is not None:
        return cost
    return Cost(hold.cost.snapshot_s, following.cost.restore_s if following else 0.0)


def _restores(holds: Sequence[Hold]) -> list[Hold]:
    """Fill in what a hold that found its context in place does not say: the median of the others."""
    known = [hold.cost.restore_s for hold in holds if hold.cost.restore_s > 0]
    usual = statistics.median(known) if known else 0.0
    return [
        hold if hold.cost.restore_s > 0 else replace(hold, cost=replace(hold.cost, restore_s=usual))
        for hold in holds
    ]


def _chained(holds: Sequence[Hold], _begin: float, cost: Cost | None) -> Callable[[float], Program]:
    """A job of one thread: what it did between two calls takes the same time again."""
    costs: dict[int, Cost] = {}
    for pool in {hold.pool for hold in holds}:
        own = _restores([hold for hold in holds if hold.pool == pool])
        places = [place for place, hold in enumerate(holds) if hold.pool == pool]
        for number, place in enumerate(places):
            costs[place] = _cost_of(own[number], own[number + 1] if number + 1 < len(own) else None, cost)
    calls = sorted(
        [(hold.asked, hold.granted, Acquire(hold.pool)) for hold in holds]
        + [(hold.yielded, hold.resumed, Yield(hold.pool, costs[n])) for n, hold in enumerate(holds)],
        key=lambda call: (call[0], call[1]),
    )

    def program(now: float) -> Program:
        free = calls[0][0]
        for at, until, call in calls:
            now = yield Until(now + at - free)
            now = yield call
            free = until

    return program


def _buffered(holds: Sequence[Hold], begin: float, cost: Cost | None) -> Callable[[float], Program]:
    """A job whose batches come by themselves; one pool."""
    if len({hold.pool for hold in holds}) > 1:
        raise BadArgument(f"job {holds[0].job} has several pools; an asynchronous record may have one")
    filled = _restores(holds)
    ready = [at - begin for at in batches(holds)]
    gaps = [b.asked - a.yielded for a, b in pairwise(holds) if b.asked - a.yielded <= _AT_ONCE_S]
    think = statistics.median(gaps) if gaps else 0.0

    def program(now: float) -> Program:
        last = now - think
        for number, hold in enumerate(holds):
            following = filled[number + 1] if number + 1 < len(filled) else None
            now = yield Until(max(ready[number], last + think))
            granted = yield Acquire(hold.pool)
            now = yield Until(granted + hold.yielded - hold.granted)
            last = yield Yield(hold.pool, _cost_of(hold, following, cost))

    return program


def batches(holds: Sequence[Hold]) -> list[float]:
    """Return when the batch of each hold was ready.

    A job that asked later than at once after its last hold had waited for the batch. Else the batch was
    there before; it came as long after the last one as is usual, but not after it was asked for.
    """
    known = [0] + [n for n in range(1, len(holds)) if holds[n].asked - holds[n - 1].yielded > _AT_ONCE_S]
    spans = [(holds[b].asked - holds[a].asked) / (b - a) for a, b in pairwise(known)]
    usual = statistics.median(spans) if spans else 0.0
    found: list[float] = []
    for number, hold in enumerate(holds):
        found.append(hold.asked if number in known else min(hold.asked, found[-1] + usual))
    return found
