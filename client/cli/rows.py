"""Rows of the report: one for each slice, for the turns of a member on one day, or for each job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from slurm_interleave.client.core.gains import Gain, gain, total
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

_NAMED = ("job_name", "group", "role", "user", "account", "partition", "phase", "backend", "comment", "day")
_SUMMED = (
    *("waited_s", "held_s", "switch_s", "snapshot_s", "restore_s", "overhead_s", "switch_bytes"),
    *("switches", "turns", "faults", "foretold", "expected_s", "missed_s"),
)
# What a job that has several slices is called after, most telling first.
_LIVE_FIRST = (SliceState.RUNNING.value, SliceState.WAITING.value)


class Row(NamedTuple):
    """One line of the report. Moments in seconds since the epoch, durations in seconds, sizes in bytes."""

    job_id: str
    job_name: str
    group: str
    role: str
    user: str
    account: str
    partition: str
    phase: str
    backend: str
    nodes: str
    state: str
    epoch: int
    comment: str
    devices: tuple[str, ...]
    partners: tuple[str, ...]
    day: str  # the date of the end, where the orchestrator is; empty: it has not ended
    requested: float
    start: float | None
    end: float | None
    elapsed_s: float
    waited_s: float
    max_wait_s: float
    held_s: float
    switch_s: float
    snapshot_s: float
    restore_s: float
    overhead_s: float
    switch_bytes: int
    switches: int
    turns: int
    faults: int
    # Turns that were told at first how long they would wait; what they were told; by how much that missed.
    foretold: int
    expected_s: float
    missed_s: float
    gain: Gain


def of_slice(item: pb.Slice, now: float) -> Row:
    """Return the row of one slice; what is under way is counted up to *now*."""
    end = item.end or None
    until = end or max(now, item.requested)
    held = max(0.0, until - item.start) if item.start else 0.0
    waited = max(0.0, (item.start or until) - item.requested)
    devices = len(item.devices)
    foretold = bool(item.start) and item.HasField("expected_s")
    return Row(
        *_texts(item),
        tuple(item.devices),
        tuple(item.partners),
        day=time.strftime("%Y-%m-%d", time.localtime(end)) if end else "",
        requested=item.requested,
        start=item.start or None,
        end=end,
        elapsed_s=held,
        waited_s=waited,
        max_wait_s=waited,
        held_s=held,
        switch_s=item.switch_s,
        snapshot_s=item.snapshot_s,
        restore_s=item.restore_s,
        overhead_s=max(0.0, item.switch_s - item.snapshot_s - item.restore_s),
        switch_bytes=item.switch_bytes,
        switches=int(item.switched),
        turns=int(bool(item.start)),
        faults=int(item.state == SliceState.FAULTED.value),
        foretold=int(foretold),
        expected_s=item.expected_s if foretold else 0.0,
        missed_s=abs(waited - item.expected_s) if foretold else 0.0,
        gain=gain(devices, off_s=item.off_s, waited_s=waited, held_s=held, share=item.share),
    )


def of_day(item: pb.DaySum) -> Row:
    """Return the row of what a member's turns of one day add up to."""
    of = item.slice
    return Row(
        *_texts(of),
        tuple(of.devices),
        tuple(of.partners),
        day=item.day,
        requested=of.requested,
        start=of.start,
        end=of.end,
        elapsed_s=max(0.0, of.end - of.start),
        waited_s=item.waited_s,
        max_wait_s=item.max_wait_s,
        held_s=item.held_s,
        switch_s=of.switch_s,
        snapshot_s=of.snapshot_s,
        restore_s=of.restore_s,
        overhead_s=item.overhead_s,
        switch_bytes=of.switch_bytes,
        switches=item.switches,
        turns=item.turns,
        faults=item.faults,
        foretold=item.foretold,
        expected_s=item.expected_s,
        missed_s=item.missed_s,
        gain=Gain(item.held_device_s, item.waited_device_s, item.exclusive_device_s, item.occupied_device_s),
    )


_Texts = tuple[str, str, str, str, str, str, str, str, str, str, str, int, str]
# The first fields of `Row`.
_texts: Callable[[pb.Slice], _Texts] = attrgetter(
    *("job_id", "job_name", "group", "role", "user", "account", "partition", "phase", "backend", "nodes"),
    *("state", "epoch", "comment"),
)


def per_job(rows: Iterable[Row], now: float) -> list[Row]:
    """Return one row for each job, in the order of their first requests.

    Durations, bytes and counts are summed; names are those that occur, in order; Elapsed goes from the first
    grant to the end of the last slice.
    """
    jobs: dict[str, list[Row]] = {}
    for row in rows:
        jobs.setdefault(row.job_id, []).append(row)
    return sorted((_sum(job, now) for job in jobs.values()), key=lambda row: row.requested)


def _sum(rows: Sequence[Row], now: float) -> Row:
    if len(rows) == 1:
        return rows[0]
    starts = [row.start for row in rows if row.start is not None]
    ends = [row.end for row in rows if row.end is not None]
    start = min(starts, default=None)
    end = max(ends) if len(ends) == len(rows) else None
    named: dict[str, Any] = {name: _names(getattr(row, name) for row in rows) for name in _NAMED}
    summed: dict[str, Any] = {name: sum(getattr(row, name) for row in rows) for name in _SUMMED}
    return Row(
        **named,
        **summed,
        job_id=rows[0].job_id,
        nodes=_names(node for row in rows for node in row.nodes.split(",")),
        devices=tuple(dict.fromkeys(device for row in rows for device in row.devices)),
        partners=tuple(dict.fromkeys(job for row in rows for job in row.partners)),
        state=_state(rows),
        epoch=max(row.epoch for row in rows),
        requested=min(row.requested for row in rows),
        start=start,
        end=end,
        elapsed_s=0.0 if start is None else max(0.0, (end or now) - start),
        max_wait_s=max(row.max_wait_s for row in rows),
        gain=total(row.gain for row in rows),
    )


def _names(names: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(name for name in names if name))


def _state(rows: Sequence[Row]) -> str:
    """Return the state of the slice that is under way, or of the last one."""
    states = {row.state for row in rows}
    for state in _LIVE_FIRST:
        if state in states:
            return state
    return max(rows, key=lambda row: row.requested).state
