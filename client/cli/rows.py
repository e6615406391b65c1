"""Rows of the report: one for each slice, or one for each job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

# What a job that has several slices is called after, most telling first.
_LIVE_FIRST = (SliceState.RUNNING.value, SliceState.WAITING.value)


@dataclass(frozen=True)
class Row:
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
    devices: tuple[str, ...]
    state: str
    epoch: int
    requested: float
    start: float | None
    end: float | None
    elapsed_s: float
    waited_s: float
    held_s: float
    switch_s: float
    snapshot_s: float
    restore_s: float
    overhead_s: float
    switch_bytes: int
    switches: int
    turns: int


def of_slice(item: pb.Slice, now: float) -> Row:
    """Return the row of one slice; what is under way is counted up to *now*."""
    end = item.end or None
    until = end or max(now, item.requested)
    held = max(0.0, until - item.start) if item.start else 0.0
    return Row(
        job_id=item.job_id,
        job_name=item.job_name,
        group=item.group,
        role=item.role,
        user=item.user,
        account=item.account,
        partition=item.partition,
        phase=item.phase,
        backend=item.backend,
        nodes=item.nodes,
        devices=tuple(item.devices),
        state=item.state,
        epoch=item.epoch,
        requested=item.requested,
        start=item.start or None,
        end=end,
        elapsed_s=held,
        waited_s=max(0.0, (item.start or until) - item.requested),
        held_s=held,
        switch_s=item.switch_s,
        snapshot_s=item.snapshot_s,
        restore_s=item.restore_s,
        overhead_s=max(0.0, item.switch_s - item.snapshot_s - item.restore_s),
        switch_bytes=item.switch_bytes,
        switches=int(item.switched),
        turns=int(bool(item.start)),
    )


def per_job(rows: Iterable[Row], now: float) -> list[Row]:
    """Return one row for each job, in the order in which the jobs first appear.

    Durations, bytes, switches and turns are summed; names are those that occur, in order; Elapsed goes from
    the first grant to the end of the last slice.
    """
    jobs: dict[str, list[Row]] = {}
    for row in rows:
        jobs.setdefault(row.job_id, []).append(row)
    return [_sum(job, now) for job in jobs.values()]


def _sum(rows: Sequence[Row], now: float) -> Row:
    starts = [row.start for row in rows if row.start is not None]
    ends = [row.end for row in rows if row.end is not None]
    start = min(starts, default=None)
    end = max(ends) if len(ends) == len(rows) else None
    return Row(
        job_id=rows[0].job_id,
        job_name=_names(row.job_name for row in rows),
        group=_names(row.group for row in rows),
        role=_names(row.role for row in rows),
        user=_names(row.user for row in rows),
        account=_names(row.account for row in rows),
        partition=_names(row.partition for row in rows),
        phase=_names(row.phase for row in rows),
        backend=_names(row.backend for row in rows),
        nodes=_names(node for row in rows for node in row.nodes.split(",")),
        devices=tuple(dict.fromkeys(device for row in rows for device in row.devices)),
        state=_state(rows),
        epoch=max(row.epoch for row in rows),
        requested=min(row.requested for row in rows),
        start=start,
        end=end,
        elapsed_s=0.0 if start is None else max(0.0, (end or now) - start),
        waited_s=sum(row.waited_s for row in rows),
        held_s=sum(row.held_s for row in rows),
        switch_s=sum(row.switch_s for row in rows),
        snapshot_s=sum(row.snapshot_s for row in rows),
        restore_s=sum(row.restore_s for row in rows),
        overhead_s=sum(row.overhead_s for row in rows),
        switch_bytes=sum(row.switch_bytes for row in rows),
        switches=sum(row.switches for row in rows),
        turns=sum(row.turns for row in rows),
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
