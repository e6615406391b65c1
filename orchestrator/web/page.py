"""The page as HTML: no scripts, nothing from outside, and whatever users have named is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slurm_interleave.client.cli import status, summary
from slurm_interleave.client.cli.fields import Column, by_name, parse_format
from slurm_interleave.client.cli.rows import Row
from slurm_interleave.client.cli.times import time_text
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.web import picture

Item = TypeVar("Item")
REFRESH_S = 10
HOUR_S = 3600.0
# A page is for looking at; all of it is in `interleave status` and `sinterleave`.
_LINES_MAX, _DEVICES_MAX, _JOBS_MAX = 500, 128, 60
_STYLE = Path(__file__).with_name("style.css").read_text()
POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


@dataclass(frozen=True)
class Seen:
    """What one caller may see now."""

    cluster: str
    who: str
    status: pb.StatusReply
    hour: Sequence[pb.Slice]  # turns of the last hour
    week: Sequence[Row]  # sums of the last seven days


def render(seen: Seen) -> str:
    """Return the page."""
    now = seen.status.now
    about = f"{time_text(now)}, {seen.who}; interleaved {seen.status.version}; anew every {REFRESH_S} s"
    parts = [
        f"<h1>Turns on {_safe(seen.cluster)}</h1>",
        f"<p>{_safe(about)}</p>",
        "<h2>Groups and queue</h2>",
        _groups(seen.status.groups, now),
        "<h2>The last hour</h2>",
        _hour(seen.hour, now),
        "<h2>Savings of the last seven days</h2>",
        _savings(seen.week),
        "<h2>Nodes</h2>",
        _nodes(seen.status.nodes),
    ]
    return _document("\n".join(parts), refresh=True)


def unknown() -> str:
    """Return what a stranger sees."""
    return _document("<h1>No such page</h1>\n<p><code>interleave web</code> prints a link that is good.</p>")


def _document(body: str, *, refresh: bool = False) -> str:
    again = f'<meta http-equiv="refresh" content="{REFRESH_S}">\n' if refresh else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{again}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>interleave</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _groups(groups: Iterable[pb.GroupStatus], now: float) -> str:
    lines = list(status.member_lines(groups, now))
    if not lines:
        return "<p>No job takes turns now.</p>"
    return _table(status.COLUMNS, lines)


def _hour(slices: Sequence[pb.Slice], now: float) -> str:
    lanes = list(picture.rows(slices, now - HOUR_S, now))
    if not lanes:
        return "<p>No device was held.</p>"
    rows = "".join(f"<span>{_safe(device)}</span>{svg}" for device, svg in lanes[:_DEVICES_MAX])
    jobs = "".join(
        f'<span><svg viewBox="0 0 1 1"><rect width="1" height="1" fill="{colour}"/></svg>{_safe(job)}</span>'
        for job, colour in list(picture.legend(slices))[:_JOBS_MAX]
    )
    ticks = "".join(f"<span>{_safe(text)}</span>" for text in ("-60 min", "-45", "-30", "-15", "now"))
    return (
        f'<div class="lanes">{rows}<span></span><div class="axis">{ticks}</div></div>\n'
        f'<div class="legend">{jobs}</div>{_rest(len(lanes) - _DEVICES_MAX, "devices")}'
    )


def _savings(rows: Sequence[Row]) -> str:
    lines = summary.summarize(rows, "group")
    if not lines:
        return "<p>No turn has ended.</p>"
    columns = by_name(summary.columns("group"))
    fields = parse_format(f"Group,{summary.DEFAULT}", columns)
    return _table([field.column for field in fields], lines)


def _nodes(nodes: Sequence[pb.NodeStatus]) -> str:
    if not nodes:
        return "<p>No agent has reported.</p>"
    lines = [
        f"<tr><td>{_safe(node.name)}</td><td>{'connected' if node.connected else 'away'}</td>"
        f"<td>{_safe(time_text(node.since))}</td><td class=n>{node.devices}</td>"
        f"<td class=n>{len(node.trespasses)}</td></tr>"
        for node in nodes[:_LINES_MAX]
    ]
    head = "<th>NODE</th><th>AGENT</th><th>SINCE</th><th class=n>DEVICES</th><th class=n>TRESPASSES</th>"
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>'


def _table(columns: Sequence[Column[Item]], items: Sequence[Item]) -> str:
    head = "".join(
        f'<th{_side(column)} title="{_safe(column.help)}">{_safe(column.name)}</th>' for column in columns
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_side(column)}>{_safe(column.kind.table(column.value(item)))}</td>" for column in columns
        )
        + "</tr>\n"
        for item in items[:_LINES_MAX]
    )
    rest = _rest(len(items) - _LINES_MAX, "lines")
    return f'<div class="wide"><table><tr>{head}</tr>\n{body}</table></div>{rest}'


def _rest(number: int, what: str) -> str:
    return f"<p>and {number} {what} more</p>" if number > 0 else ""


def _side(column: Column[Item]) -> str:
    return " class=n" if column.kind.right else ""


def _safe(text: str) -> str:
    return html.escape(text)
