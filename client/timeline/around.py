"""What stands around the bars of the picture: its title, the two axes, the legend."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_interleave.client.timeline.spans import Picture

TITLE = "Turns on the devices"
INK, GREY, GRID = "#1f2933", "#52606d", "#e4e7eb"
WARM = "yielded, still on device"
_LEGEND_COLUMNS = 4


def title(shown: Picture, text: str) -> dict[str, Any]:
    """Return the heading: *text*, and when the picture began and how long it lasted."""
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(shown.start))
    return {
        "text": text or TITLE,
        "subtitle": f"began {began}, lasted {shown.end - shown.start:.1f} s",
        "anchor": "start",
        "frame": "group",
        "fontSize": 16,
        "color": INK,
        "subtitleColor": GREY,
        "subtitlePadding": 4,
        "offset": 12,
    }


def y(lanes: Mapping[str, float], labels: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the lanes, from above, each with its *labels*."""
    lowest = min(lanes.values(), default=0.0)
    return {
        "field": "low",
        "type": "quantitative",
        "scale": {"domain": [lowest - 0.6, 0.6], "nice": False, "zero": False},
        "axis": {
            "title": None,
            "values": list(lanes.values()),
            "labelExpr": f"{json.dumps(labels)}[datum.value]",
            "labelLimit": 0,
            "labelColor": INK,
            "labelOffset": -7,
            "labelFontSize": 12,
            "labelLineHeight": 15,
            "labelPadding": 8,
            "grid": False,
            "ticks": False,
            "domain": False,
        },
    }


def x(shown: Picture) -> dict[str, Any]:
    """Return the time."""
    return {
        "field": "from",
        "type": "quantitative",
        "scale": {"domain": [0, (shown.end - shown.start) * 1.01 or 1], "nice": False},
        "axis": {"title": "seconds since the first acquire", "gridColor": GRID, "labelColor": INK},
    }


def legend(looks: set[str], colours: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the legend: of the light shades of what is warm, each a job's, one stands for all."""
    if not looks:
        return None
    warm = [look for look in colours if look.startswith(WARM)]
    return {
        "title": None,
        "orient": "bottom",
        "columns": _LEGEND_COLUMNS,
        "symbolType": "square",
        "labelColor": INK,
        "values": [look for look in colours if look in looks and look not in warm[1:]],
        "labelExpr": f"indexof(datum.value, {json.dumps(WARM)}) === 0 ? {json.dumps(WARM)} : datum.value",
    }
