"""The last hour of each device as one row of SVG: a unit is a second, so nothing is computed for it."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from slurm_interleave.client.timeline.palette import Palette
from slurm_interleave.client.timeline.spans import Kind, Span, picture
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

_SHOWN = {
    Kind.HELD: "holds",
    Kind.SNAPSHOT: "snapshot",
    Kind.SWITCH: "handover",
    Kind.RESTORE: "restore",
    Kind.WARM: "yielded, still on the device",
}


def rows(slices: Sequence[pb.Slice], start: float, now: float) -> Iterator[tuple[str, str]]:
    """Yield each device with the SVG of what was on it from *start* to *now*, seconds since the epoch."""
    shown, palette = picture(slices, now), Palette(slices)
    for device in shown.devices:
        spans = [s for s in shown.spans if s.lane == device and s.kind in _SHOWN and s.end > start]
        bars = "".join(
            _bar(span, max(span.start, start) - start, span.end - start, palette) for span in spans
        )
        yield device, f'<svg viewBox="0 0 {now - start:.0f} 1" preserveAspectRatio="none">{bars}</svg>'


def legend(slices: Sequence[pb.Slice]) -> Iterator[tuple[str, str]]:
    """Yield each job of *slices* with its colour."""
    palette = Palette(slices)
    jobs: dict[str, pb.Slice] = {}
    for item in sorted(slices, key=lambda item: item.requested):
        jobs.setdefault(item.job_id, item)
    for job, item in jobs.items():
        yield f"{job} {item.job_name}".strip(), palette.colour(job, item.phase)


def _bar(span: Span, start: float, end: float, palette: Palette) -> str:
    item = span.item
    what = f"job {item.job_id} {item.phase}: {_SHOWN[span.kind]}, {span.end - span.start:.1f} s"
    if span.kind is Kind.HELD:
        look = f'fill="{palette.colour(span.job, item.phase)}"'
    elif span.kind is Kind.WARM:
        look = f'fill="{palette.pale(span.job)}"'
    else:
        look = 'class="switch"'
    return (
        f'<rect x="{start:.2f}" width="{max(0.0, end - start):.2f}" height="1" {look}>'
        f"<title>{html.escape(what)}</title></rect>"
    )
