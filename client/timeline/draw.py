"""The picture as a Vega-Lite chart. Colour is a job that holds; grey is time in which nobody computes.

The chart is plain JSON (https://vega.github.io/vega-lite/docs/spec.html), and what users have named is data.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_interleave.client.timeline import around
from slurm_interleave.client.timeline.around import WARM
from slurm_interleave.client.timeline.palette import Palette, ink_on
from slurm_interleave.client.timeline.spans import Kind, Picture, Span, device_order, job_lane, picture
from slurm_interleave.client.timeline.work import Work, busy_s, place
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_PAPER, _WORK = "#ffffff", "#111111"
_LANE_PX, _LABEL_MAX, _LETTER_PX, _WIDTH_PX = 52, 28, 7.5, 1000
_COMPUTES = "device computes"


@dataclass(frozen=True)
class _Style:
    """How a kind of span is drawn: its label, height (of the distance of two lanes) and colour."""

    label: str
    height: float
    colour: str = ""  # empty: the job's


_STYLES = {
    Kind.HELD: _Style("holds", 0.62),
    Kind.WARM: _Style(WARM, 0.16),
    Kind.WAITING: _Style("waits", 0.34, "#d5dbe1"),
    Kind.SNAPSHOT: _Style("switch: snapshot", 0.62, "#323f4b"),
    Kind.SWITCH: _Style("switch: handover", 0.62, "#f0b429"),
    Kind.RESTORE: _Style("switch: restore", 0.62, "#9aa5b1"),
    Kind.SAVED: _Style("saved in host memory", 0.07, "#7b8794"),
}


def chart(
    slices: Sequence[pb.Slice], work: Sequence[Work] = (), title: str = "", now: float | None = None
) -> dict[str, Any]:
    """Return the Vega-Lite chart of *slices* and *work*; times in seconds since the first acquire.

    Slices under way are drawn up to *now*, by default the last moment that is known.
    """
    shown = picture(slices, now, until=max((item.end for item in work), default=0.0))
    placed = _place(work, slices, shown)
    lanes = _lanes(shown, placed)
    palette = Palette(slices)
    # Thin lines first, so that the bars of turns lie over them.
    spans = sorted(shown.spans, key=lambda span: _STYLES[span.kind].height)
    bars = [_bar(span, lanes[span.lane], shown.start, palette) for span in spans]
    bars += _computing(placed, lanes, shown.start)
    labels = _labels(shown, placed, slices, lanes)
    return {
        "$schema": SCHEMA,
        "title": around.title(shown, title),
        "background": _PAPER,
        "padding": 10,
        "width": _WIDTH_PX,
        "height": _LANE_PX * (1.2 - min(lanes.values(), default=0.0)),
        "layer": [_bars_layer(bars, shown, _colours(shown, palette)), _names_layer(bars)],
        "encoding": {"y": around.y(lanes, labels)},
        "config": {"font": "DejaVu Sans, Liberation Sans, sans-serif", "view": {"stroke": None}},
    }


def _place(work: Sequence[Work], slices: Sequence[pb.Slice], shown: Picture) -> dict[str, list[Work]]:
    """Return *work* by device."""
    devices: dict[str, list[str]] = {}
    for item in slices:
        devices.setdefault(item.job_id, []).extend(d for d in item.devices if d not in devices[item.job_id])
    placed: dict[str, list[Work]] = {}
    for interval in work:
        lane = place(interval, shown.devices, devices.get(interval.job, ()))
        placed.setdefault(lane, []).append(interval)
    return placed


def _lanes(shown: Picture, placed: Mapping[str, Sequence[Work]]) -> dict[str, float]:
    """Return the height at which each lane stands: devices above, a gap, jobs below."""
    devices = sorted({*shown.devices, *placed}, key=device_order)
    rows = [*((lane, 0.0) for lane in devices), *((job_lane(job), 0.5) for job in shown.jobs)]
    return {lane: -position - gap for position, (lane, gap) in enumerate(rows)}


def _look(span: Span) -> str:
    """Return the name of the colour of *span*; the legend shows it."""
    if span.kind is Kind.HELD:
        return f"{span.job} {span.item.phase}".strip()
    return f"{WARM} {span.job}" if span.kind is Kind.WARM else _STYLES[span.kind].label


def _bar(span: Span, y: float, start: float, palette: Palette) -> dict[str, Any]:
    item, style = span.item, _STYLES[span.kind]
    held = span.kind is Kind.HELD
    who = f"job {item.job_id} {item.job_name}".strip()
    bar = _rectangle(y, style.height, span.start - start, span.end - span.start)
    bar |= {
        "look": _look(span),
        "text": item.phase if held else "",
        "ink": ink_on(palette.colour(span.job, item.phase)),
        "lane": span.lane,
        "what": f"{who}: {style.label}",
        "turn": f"phase {item.phase or '(none)'}, group {item.group}, lease {item.epoch}, {item.state}",
    }
    if item.switched and span.kind not in (Kind.WARM, Kind.SAVED):
        ours = max(0.0, item.switch_s - item.snapshot_s - item.restore_s)
        bar["switch"] = (
            f"{item.switch_s:.3f} s: snapshot {item.snapshot_s:.3f} s, restore {item.restore_s:.3f} s, "
            f"handover {ours:.3f} s; {item.switch_bytes / 2**20:,.1f} MiB"
        )
    return bar


def _computing(
    placed: Mapping[str, Sequence[Work]], lanes: Mapping[str, float], start: float
) -> list[dict[str, Any]]:
    return [
        _rectangle(lanes[lane] - 0.4, 0.09, item.start - start, item.end - item.start)
        | {
            "look": _COMPUTES,
            "text": "",
            "ink": _PAPER,
            "lane": lane,
            "what": f"{lane} computes",
            "turn": f"job {item.job}: {item.name}",
        }
        for lane, intervals in placed.items()
        for item in intervals
    ]


def _rectangle(y: float, height: float, start: float, length: float) -> dict[str, Any]:
    return {
        "low": round(y - height / 2, 3),
        "high": round(y + height / 2, 3),
        "from": round(start, 6),
        "to": round(start + length, 6),
        "seconds": round(length, 6),
    }


def _labels(
    shown: Picture,
    placed: Mapping[str, Sequence[Work]],
    slices: Sequence[pb.Slice],
    lanes: Mapping[str, float],
) -> dict[str, list[str]]:
    """Return what stands beside each lane, by its height: its name, and a note."""
    length = shown.end - shown.start
    jobs = {job_lane(job): job for job in shown.jobs}
    turns = defaultdict[str, list[pb.Slice]](list)
    for item in slices:
        turns[item.job_id].append(item)
    labels = {}
    for lane, y in lanes.items():
        name, note = lane, ""
        if lane in jobs:
            own = turns[jobs[lane]]
            granted, switches = sum(1 for item in own if item.start), sum(item.switched for item in own)
            name = textwrap.shorten(f"{jobs[lane]} {own[0].job_name}", _LABEL_MAX, placeholder="…")
            note = f"{granted} turns, {switches} switches"
        elif lane in placed and length > 0:
            note = f"computes {busy_s(placed[lane]) / length:.0%}"
        labels[f"{y:g}"] = [name, note]
    return labels


def _colours(shown: Picture, palette: Palette) -> dict[str, str]:
    """Return the colour of each look that occurs, in the order of the legend."""
    spans = sorted(shown.spans, key=lambda span: (list(_STYLES).index(span.kind), palette.rank(span.job)))
    looks: dict[str, str] = {}
    for span in spans:
        if span.kind is Kind.HELD:
            colour = palette.colour(span.job, span.item.phase)
        else:
            colour = _STYLES[span.kind].colour or palette.pale(span.job)
        looks.setdefault(_look(span), colour)
    return looks | {_COMPUTES: _WORK}


def _bars_layer(bars: Sequence[Mapping[str, Any]], shown: Picture, colours: dict[str, str]) -> dict[str, Any]:
    return {
        "data": {"values": list(bars)},
        "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
        "mark": {"type": "rect", "clip": True},
        "encoding": {
            "x": around.x(shown),
            "x2": {"field": "to"},
            "y2": {"field": "high"},
            "color": {
                "field": "look",
                "type": "nominal",
                "scale": {"domain": list(colours), "range": list(colours.values())},
                "legend": around.legend({str(bar["look"]) for bar in bars}, colours),
            },
            "tooltip": _TOOLTIP,
            "description": {"field": "what", "type": "nominal"},
        },
    }


_TOOLTIP = [
    {"field": "what", "type": "nominal", "title": "what"},
    {"field": "lane", "type": "nominal", "title": "lane"},
    {"field": "from", "type": "quantitative", "title": "from, s", "format": ",.3f"},
    {"field": "to", "type": "quantitative", "title": "to, s", "format": ",.3f"},
    {"field": "seconds", "type": "quantitative", "title": "lasted, s", "format": ",.3f"},
    {"field": "turn", "type": "nominal", "title": "turn"},
    {"field": "switch", "type": "nominal", "title": "switch"},
]


def _names_layer(bars: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the names of phases, where their bars are wide enough to hold them."""
    width, needed = "scale('x', datum.to) - scale('x', datum.from)", f"{_LETTER_PX} * length(datum.text) + 6"
    return {
        "data": {"values": [bar for bar in bars if bar["text"]]},
        "transform": [
            {"calculate": "(datum.from + datum.to) / 2", "as": "middle"},
            {"calculate": "(datum.low + datum.high) / 2", "as": "centre"},
        ],
        "mark": {"type": "text", "clip": True},
        "encoding": {
            "x": {"field": "middle", "type": "quantitative"},
            "y": {"field": "centre", "type": "quantitative"},
            "text": {
                "condition": {"test": f"{width} > {needed}", "field": "text", "type": "nominal"},
                "value": "",
            },
            "color": {"field": "ink", "type": "nominal", "scale": None},
            "tooltip": _TOOLTIP,
        },
    }
