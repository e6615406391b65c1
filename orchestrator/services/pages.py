"""Turns and sums of days as the report's messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.sql.rows import Day, Slice

_MESSAGE_MAX = 2 << 20  # half of what clients take that set no limit
_INT64_MAX = (1 << 63) - 1


def slice_pages(page: Sequence[Slice | Day]) -> Iterator[pb.SlicePage]:
    """Yield a page of the report, in parts where it is more than any gRPC client takes in one message."""
    message = pb.SlicePage(
        slices=[wire_slice(row) for row in page if isinstance(row, Slice)],
        days=[wire_day(row) for row in page if isinstance(row, Day)],
    )
    if message.ByteSize() <= _MESSAGE_MAX or len(page) == 1:
        yield message
        return
    for part in (page[: len(page) // 2], page[len(page) // 2 :]):
        yield from slice_pages(part)


def wire_slice(row: Slice) -> pb.Slice:
    """Return *row* as the report's message."""
    return _slice(
        row,
        switched=row.switched,
        switch_bytes=row.switch_bytes,
        off_s=row.off_s,
        share=row.share,
        expected_s=row.expected_s if row.expected_s >= 0 else None,
    )


def _slice(row: Slice | Day, **more: Any) -> pb.Slice:
    """Return what a turn and the sums of a day both say, and *more*."""
    return pb.Slice(
        job_id=row.job_id,
        job_name=row.name,
        user=row.user,
        account=row.account,
        partition=row.partition,
        group=row.group,
        role=row.role,
        phase=row.phase,
        backend=row.backend,
        nodes=",".join(row.nodes),
        devices=row.devices,
        state=row.state.value,
        epoch=row.epoch,
        requested=row.requested,
        start=row.granted,
        end=row.ended,
        switch_s=row.switch_s,
        snapshot_s=row.snapshot_s,
        restore_s=row.restore_s,
        partners=row.partners,
        comment=row.comment,
        **more,
    )


def wire_day(row: Day) -> pb.DaySum:
    """Return the sums of a member's day as the report's message."""
    date = str(row.day)
    return pb.DaySum(
        day=f"{date[:-4]}-{date[-4:-2]}-{date[-2:]}",
        slice=_slice(row, switch_bytes=min(int(row.switch_bytes), _INT64_MAX)),
        turns=row.turns,
        switches=row.switches,
        faults=row.faults,
        held_s=row.held_s,
        waited_s=row.waited_s,
        max_wait_s=row.max_wait_s,
        overhead_s=row.overhead_s,
        held_device_s=row.held_device_s,
        waited_device_s=row.waited_device_s,
        exclusive_device_s=row.exclusive_device_s,
        occupied_device_s=row.occupied_device_s,
        foretold=row.foretold,
        expected_s=row.expected_s,
        missed_s=row.missed_s,
    )
