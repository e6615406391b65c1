"""The picture as a plotly figure. Colour is a job that holds; grey is time in which nobody computes."""

from __future__ import annotations

import html
import math
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_interleave.client.timeline.palette import Palette
from slurm_interleave.client.timeline.spans import Kind, Picture, Span, device_order, job_lane, picture
from slurm_interleave.client.timeline.work import Work, busy_s, place
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

_INK, _PAPER, _GRID, _WORK = "#1f2933", "#ffffff", "#e4e7eb", "#111111"
_LANE_PX, _TOP_PX, _AXIS_PX, _LEGEND_ROW_PX, _LEGEND_ROW = 52, 75, 65, 20, 3
_LABEL_MAX = 28


@dataclass(frozen=True)
class _Style:
    """How a kind of span is drawn: its label, height (of the distance of two lanes), colour and hatching."""

    label: str
    height: float
    colour: str = ""  # empty: the job's
    pattern: str = ""
    rank: int = 0


_STYLES = {
    Kind.HELD: _Style("holds", 0.62),
    Kind.WARM: _Style("yielded, still on device", 0.16),
    Kind.SAVED: _Style("saved in host memory", 0.07, "#7b8794", rank=4),
    Kind.WAITING: _Style("waits", 0.34, "#cbd2d9", "/", rank=1),
    Kind.SNAPSHOT: _Style("switch: snapshot", 0.62, "#323f4b", rank=2),
    Kind.SWITCH: _Style("switch: handover", 0.62, "#f0b429", rank=2),
    Kind.RESTORE: _Style("switch: restore", 0.62, "#9aa5b1", rank=3),
}


@dataclass
class _Bars:
    """One trace: the bars of one look."""

    y: list[float] = field(default_factory=list)
    base: list[float] = field(default_factory=list)
    x: list[float] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    hover: list[str] = field(default_factory=list)

    def add(self, y: float, start: float, length: float, text: str, hover: str) -> None:
        for column, value in zip((self.y, self.base, self.x), (y, start, length), strict=True):
            column.append(round(value, 6))
        self.text.append(text)
        self.hover.append(hover)


def figure(
    slices: Sequence[pb.Slice], work: Sequence[Work] = (), title: str = "", now: float | None = None
) -> Any:
    """Return the plotly figure of *slices* and *work*; times in seconds since the first acquire.

    Slices under way are drawn up to *now*, by default the last moment that is known. Raises
    `ModuleNotFoundError` where plotly is not installed.
    """
    import plotly.graph_objects as go

    shown = picture(slices, now, until=max((item.end for item in work), default=0.0))
    placed = _place(work, slices, shown)
    lanes = _lanes(shown, placed)
    painting = go.Figure()
    palette = Palette(slices)
    for trace in (*_span_traces(shown, lanes, palette), *_work_traces(placed, lanes, shown.start)):
        painting.add_trace(go.Bar(trace))
    painting.update_layout(_layout(shown, title))
    painting.update_layout(_rows(lanes, _labels(shown, placed, slices), len(painting.data)))
    return painting


def _safe(text: str) -> str:
    """Return *text* so that plotly, which knows some HTML, shows it as it is."""
    return html.escape(text)


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


def _span_traces(shown: Picture, lanes: Mapping[str, float], palette: Palette) -> list[dict[str, Any]]:
    bars: dict[tuple[Kind, str, str], _Bars] = {}
    for span in shown.spans:
        look = (span.kind, span.job, span.item.phase) if span.kind is Kind.HELD else (span.kind, "", "")
        if span.kind is Kind.WARM:
            look = (span.kind, span.job, "")
        text = _safe(span.item.phase) if span.kind is Kind.HELD else ""
        bars.setdefault(look, _Bars()).add(
            lanes[span.lane], span.start - shown.start, span.end - span.start, text, _hover(span, shown.start)
        )
    # Thin lines first, so that the bars of turns lie over them.
    order = sorted(bars, key=lambda look: _STYLES[look[0]].height)
    first_warm = next((look for look in order if look[0] is Kind.WARM), None)
    return [
        _span_trace(look, bars[look], palette, legend=look[0] is not Kind.WARM or look == first_warm)
        for look in order
    ]


def _span_trace(
    look: tuple[Kind, str, str], bars: _Bars, palette: Palette, *, legend: bool
) -> dict[str, Any]:
    kind, job, phase = look
    style = _STYLES[kind]
    held = kind is Kind.HELD
    colour = palette.colour(job, phase) if held else style.colour or palette.pale(job)
    name = f"{job} {phase}".strip() if held else style.label
    trace = _trace(bars, style.height, name, colour, legend=legend)
    trace["legendrank"] = palette.rank(job) if held else 100 + style.rank
    trace["legendgroup"] = f"job {job}" if held else kind.value
    if style.pattern:
        trace["marker"]["pattern"] = {
            "shape": style.pattern,
            "size": 6,
            "solidity": 0.2,
            "fgcolor": "#829ab1",
            "bgcolor": "#e4e7eb",
        }
    return trace


def _work_traces(
    placed: Mapping[str, Sequence[Work]], lanes: Mapping[str, float], start: float
) -> list[dict[str, Any]]:
    bars = _Bars()
    for lane, intervals in placed.items():
        for item in intervals:
            length = item.end - item.start
            hover = f"<b>{_safe(lane)} computes</b><br>job {_safe(item.job)}: {_safe(item.name)}"
            bars.add(lanes[lane] - 0.4, item.start - start, length, "", f"{hover}<br>{length:.3f} s")
    if not bars.x:
        return []
    trace = _trace(bars, 0.09, "device computes", _WORK, legend=True)
    trace["legendrank"] = 90
    return [trace]


def _trace(bars: _Bars, height: float, name: str, colour: str, *, legend: bool) -> dict[str, Any]:
    return {
        "orientation": "h",
        "x": bars.x,
        "y": bars.y,
        "base": bars.base,
        "width": height,
        "offset": -height / 2,
        "name": _safe(name),
        "showlegend": legend,
        "marker": {"color": colour, "line": {"width": 0}},
        "text": bars.text,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "inside",
        "customdata": bars.hover,
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _hover(span: Span, start: float) -> str:
    item = span.item
    who = f"job {item.job_id} {item.job_name}".strip()
    lines = [
        f"<b>{_safe(who)}: {_safe(_STYLES[span.kind].label)}</b>",
        f"{span.end - span.start:.3f} s, from {span.start - start:.3f} s to {span.end - start:.3f} s",
        _safe(f"phase {item.phase or '(none)'}, group {item.group}, lease {item.epoch}, {item.state}"),
    ]
    if item.switched and span.kind not in (Kind.WARM, Kind.SAVED):
        ours = max(0.0, item.switch_s - item.snapshot_s - item.restore_s)
        lines.append(
            f"switch {item.switch_s:.3f} s: snapshot {item.snapshot_s:.3f} s, "
            f"restore {item.restore_s:.3f} s, handover {ours:.3f} s; {item.switch_bytes / 2**20:,.1f} MiB"
        )
    return "<br>".join(lines)


def _labels(
    shown: Picture, placed: Mapping[str, Sequence[Work]], slices: Sequence[pb.Slice]
) -> dict[str, str]:
    """Return the label of each lane."""
    length = shown.end - shown.start
    labels = {lane: f"<b>{_safe(lane)}</b>" for lane in {*shown.devices, *placed}}
    for lane, intervals in placed.items():
        if length > 0:
            labels[lane] += f"<br>computes {busy_s(intervals) / length:.0%}"
    for job in shown.jobs:
        own = [item for item in slices if item.job_id == job]
        turns, switches = sum(1 for item in own if item.start), sum(item.switched for item in own)
        name = textwrap.shorten(f"{job} {own[0].job_name}", _LABEL_MAX, placeholder="…")
        labels[job_lane(job)] = f"<b>{_safe(name)}</b><br>{turns} turns, {switches} switches"
    return labels


def _layout(shown: Picture, title: str) -> dict[str, Any]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(shown.start))
    heading = f"<b>{_safe(title or 'Turns on the devices')}</b>"
    length = shown.end - shown.start
    hint = f"began {began}, lasted {length:.1f} s; drag to look closer, double-click to go back"
    return {
        "barmode": "overlay",
        "template": "none",
        "title": {"text": f"{heading}<br><sup>{hint}</sup>", "x": 0.01, "xanchor": "left"},
        "font": {"family": "system-ui, 'DejaVu Sans', sans-serif", "size": 13, "color": _INK},
        "paper_bgcolor": _PAPER,
        "plot_bgcolor": _PAPER,
        "hoverlabel": {"align": "left", "bgcolor": _PAPER, "font": {"color": _INK}},
        "uniformtext": {"minsize": 10, "mode": "hide"},
        "dragmode": "zoom",
        "xaxis": {
            "title": {"text": "seconds since the first acquire", "font": {"size": 13}, "standoff": 6},
            "range": [0, length * 1.01 or 1],
            "gridcolor": _GRID,
            "zeroline": False,
            "ticks": "outside",
        },
    }


def _rows(lanes: Mapping[str, float], labels: Mapping[str, str], entries: int) -> dict[str, Any]:
    """Return the part of the layout that depends on how many lanes and legend entries there are."""
    bottom = _AXIS_PX + _LEGEND_ROW_PX * math.ceil(entries / _LEGEND_ROW)
    lowest = min(lanes.values(), default=0.0)
    return {
        "height": round(_TOP_PX + _LANE_PX * (1.2 - lowest) + bottom),
        "margin": {"l": 10, "r": 30, "t": _TOP_PX, "b": bottom},
        "legend": {
            "orientation": "h",
            "x": 0.01,
            "xref": "container",
            "y": 0,
            "yanchor": "bottom",
            "yref": "container",
            "traceorder": "normal",
            "entrywidth": 140,
            "entrywidthmode": "pixels",
        },
        "yaxis": {
            "tickvals": list(lanes.values()),
            "ticktext": [labels[lane] for lane in lanes],
            "range": [lowest - 0.6, 0.6],
            "fixedrange": True,
            "automargin": True,
            "ticklabelstandoff": 8,
            "showgrid": False,
            "zeroline": False,
        },
    }
