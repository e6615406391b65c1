"""The spans as a trace for https://ui.perfetto.dev, in its protobuf form.

As https://perfetto.dev/docs/reference/synthetic-track-event has it: descriptors of tracks, then the begins
and ends of slices on them. What overlaps on one track must nest, so a lane is several tracks of one name
where it needs them; Perfetto shows these as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from slurm_interleave.client.timeline.spans import Kind, Picture, Span, device_order, job_lane, picture
from slurm_interleave.client.timeline.work import Work
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

_Interval = TypeVar("_Interval", Span, Work)
_SEQUENCE = 1
_NS = 1_000_000_000
# The state of a context lies under turns, whose ends are not its ends.
_STATE = frozenset({Kind.WARM, Kind.SAVED})
_NAMES: dict[str, str] = {Kind.WARM: "still on device", Kind.SAVED: "in host memory"}


def trace(slices: Sequence[pb.Slice], work: Sequence[Work], title: str, now: float | None) -> bytes:
    """Return the trace of *slices* and *work*, named *title*."""
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    writer = _Writer(TraceProtoBuilder())
    shown = picture(slices, now, until=max((item.end for item in work), default=0.0))
    lanes = _lanes(shown)
    root = writer.track(title or "interleave", 0, rank=0)
    for rank, (lane, name) in enumerate(_names(shown, slices)):
        turns, states = lanes[lane]
        for row in _rows(turns):
            writer.spans(writer.track(name, root, 2 * rank), row)
        for row in _rows(states):
            writer.spans(writer.track(f"{name}: state", root, 2 * rank + 1), row)
    computing = defaultdict[str, list[Work]](list)
    for item in work:
        computing[f"device {item.device} computes"].append(item)
    for name, intervals in sorted(computing.items()):
        for busy in _rows(intervals):
            writer.work(writer.track(name, root, 2 * len(lanes)), busy)
    data: bytes = writer.builder.serialize()
    return data


def _lanes(shown: Picture) -> defaultdict[str, tuple[list[Span], list[Span]]]:
    """Return what each lane shows: turns, and states of contexts."""
    lanes: defaultdict[str, tuple[list[Span], list[Span]]] = defaultdict(lambda: ([], []))
    for span in shown.spans:
        lanes[span.lane][span.kind in _STATE].append(span)
    return lanes


def _names(shown: Picture, slices: Sequence[pb.Slice]) -> Iterator[tuple[str, str]]:
    """Yield each lane and its name, in order."""
    jobs = {item.job_id: item.job_name for item in slices}
    for device in sorted(shown.devices, key=device_order):
        yield device, f"device {device}"
    for job in shown.jobs:
        yield job_lane(job), f"job {job} {jobs[job]}".strip()


def _rows(spans: Iterable[_Interval]) -> list[list[_Interval]]:
    """Return *spans* in as few rows as they need, so that nothing overlaps within one."""
    rows: list[list[_Interval]] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        free = next((row for row in rows if row[-1].end <= span.start), None)
        if free is None:
            rows.append([span])
        else:
            free.append(span)
    return rows


def _name(span: Span) -> str:
    if span.kind is Kind.HELD:
        return f"{span.job} {span.item.phase}".strip()
    return _NAMES.get(span.kind, str(span.kind.value))


def _facts(span: Span) -> dict[str, str | int]:
    item = span.item
    facts: dict[str, str | int] = {"job": item.job_id, "phase": item.phase, "group": item.group}
    facts |= {"lease": item.epoch, "state": item.state}
    return facts | ({"switch bytes": item.switch_bytes} if item.switched else {})


class _Writer:
    """Adds packets to a trace."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self._tracks = 0

    def track(self, name: str, parent: int, rank: int) -> int:
        """Add a track below *parent* (0: none), the *rank*th there, and return its number."""
        packet = self.builder.add_packet()
        self._tracks += 1
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.name, descriptor.sibling_order_rank = self._tracks, name, rank
        descriptor.child_ordering = descriptor.EXPLICIT
        if parent:
            descriptor.parent_uuid = parent
        return self._tracks

    def spans(self, track: int, spans: Iterable[Span]) -> None:
        """Add *spans* to *track*."""
        for span in spans:
            self._slice(track, span.kind.value, _name(span), span, _facts(span))

    def work(self, track: int, work: Iterable[Work]) -> None:
        """Add *work* to *track*."""
        for item in work:
            self._slice(track, "work", item.name, item, {"job": item.job})

    def _slice(
        self, track: int, category: str, name: str, when: Span | Work, facts: dict[str, str | int]
    ) -> None:
        event = self._event(track, when.start)
        event.type, event.name = event.TYPE_SLICE_BEGIN, name
        event.categories.append(category)
        for key, value in facts.items():
            note = event.debug_annotations.add(name=key)
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value = value
        event = self._event(track, when.end)
        event.type = event.TYPE_SLICE_END

    def _event(self, track: int, at: float) -> Any:
        packet = self.builder.add_packet()
        packet.timestamp, packet.trusted_packet_sequence_id = round(at * _NS), _SEQUENCE
        packet.track_event.track_uuid = track
        return packet.track_event
