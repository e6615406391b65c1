"""What there is to see: slices become spans of time on the lanes of devices and jobs. No drawing here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from slurm_interleave.client.wire import interleave_v1_pb2 as pb


class Kind(str, Enum):
    """What a job or a device does during a span."""

    HELD = "held"  # the job holds the devices
    WAITING = "waiting"  # from acquire to the switch, or to the grant
    SNAPSHOT = "snapshot"  # the slowest node saves the state of the job that goes
    SWITCH = "handover"  # of a switch, what is neither snapshot nor restore: ours
    RESTORE = "restore"  # the slowest node brings back the state of the job that comes
    WARM = "warm"  # yielded, the state is still on the devices
    SAVED = "saved"  # the state is in host memory


@dataclass(frozen=True)
class Span:
    """One span on one lane; times in seconds since the epoch."""

    lane: str
    kind: Kind
    start: float
    end: float
    job: str
    item: pb.Slice


@dataclass(frozen=True)
class Picture:
    """All spans, and the lanes in the order in which they are drawn."""

    devices: tuple[str, ...]
    jobs: tuple[str, ...]
    spans: tuple[Span, ...]
    start: float
    end: float


def picture(slices: Sequence[pb.Slice], now: float | None = None, until: float = 0.0) -> Picture:
    """Return the picture of *slices*; what is under way is drawn up to *now*, by default the last known one.

    *until* is a moment that the picture shows at least.
    """
    ordered = sorted(slices, key=lambda item: (item.start or float("inf"), item.requested))
    start = min((item.requested for item in ordered), default=0.0)
    last = max((max(item.requested, item.start, item.end) for item in ordered), default=start)
    end = max(last, until, now or 0.0)
    devices = tuple(sorted({device for item in ordered for device in item.devices}, key=device_order))
    spans = [span for item in ordered for span in _of_slice(item, end)]
    turns = [item for item in ordered if item.start]
    on = defaultdict[str, list[pb.Slice]](list)
    for item in turns:
        for device in dict.fromkeys(item.devices):
            on[device].append(item)
    for device in devices:
        spans += _warm(device, on[device])
    spans += _saved(turns)
    jobs = tuple(dict.fromkeys(item.job_id for item in sorted(slices, key=lambda item: item.requested)))
    shown = {(s.lane, s.kind, s.start, s.end): s for s in spans if s.end > s.start}
    return Picture(devices, jobs, tuple(shown.values()), start, end)


def device_order(device: str) -> tuple[str, int, str]:
    """Return what devices are sorted by: the node, then the index as a number."""
    node, _, index = device.rpartition("/")
    return (node, int(index) if index.isdecimal() else -1, device)


def job_lane(job: str) -> str:
    """Return the lane of *job*; devices are their own lanes."""
    return f"job {job}"


def _of_slice(item: pb.Slice, end: float) -> Iterator[Span]:
    """Yield the spans of one turn: it waits, is switched in, holds."""
    lane, granted = job_lane(item.job_id), item.start or item.end or end
    lasted = item.switch_s if item.switched and item.start else 0.0
    switch = max(item.requested, granted - lasted)
    yield Span(lane, Kind.WAITING, item.requested, switch, item.job_id, item)
    if not item.start:
        return
    for place in (lane, *item.devices):
        yield from _switch(place, switch, item)
        yield Span(place, Kind.HELD, item.start, item.end or end, item.job_id, item)


def _switch(lane: str, begin: float, item: pb.Slice) -> Iterator[Span]:
    saved = min(begin + item.snapshot_s, item.start)
    restoring = max(saved, item.start - item.restore_s) if item.switched else item.start
    if not item.switched:
        return
    yield Span(lane, Kind.SNAPSHOT, begin, saved, item.job_id, item)
    yield Span(lane, Kind.SWITCH, saved, restoring, item.job_id, item)
    yield Span(lane, Kind.RESTORE, restoring, item.start, item.job_id, item)


def _warm(device: str, turns: Sequence[pb.Slice]) -> Iterator[Span]:
    """Yield when the device was free while the last holder's state was still on it."""
    for before, after in pairwise(turns):
        if before.end and (before.job_id == after.job_id or after.snapshot_s):
            gone = after.start if before.job_id == after.job_id else after.start - after.switch_s
            for lane in (device, job_lane(before.job_id)):
                yield Span(lane, Kind.WARM, before.end, gone, before.job_id, before)


def _saved(turns: Sequence[pb.Slice]) -> list[Span]:
    """Return when a job's state was in host memory: from the other's switch to its own next one."""
    spans = []
    own: dict[str, pb.Slice] = {}  # the next turn of each job
    on: dict[str, int] = {}  # the next turn on each device
    for position, item in reversed(list(enumerate(turns))):
        job, devices = item.job_id, item.devices
        others = [on[device] for device in devices if device in on and turns[on[device]].job_id != job]
        evicted, back = turns[min(others)] if others else None, own.get(job)
        if evicted and back and evicted.snapshot_s and evicted.start <= back.start - back.restore_s:
            begin = evicted.start - evicted.switch_s + evicted.snapshot_s
            spans.append(Span(job_lane(job), Kind.SAVED, begin, back.start - back.restore_s, job, item))
        own[job] = item
        on.update(dict.fromkeys(devices, position))
    return spans[::-1]
