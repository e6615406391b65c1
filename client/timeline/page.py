"""The figure as one HTML file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from slurm_interleave.client.timeline.draw import figure
from slurm_interleave.client.timeline.work import Work
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>body {{ margin: 12px; background: #fff }}</style>
</head>
<body>
{body}
</body>
</html>
"""


def write_timeline(
    path: Path | str,
    slices: Sequence[pb.Slice],
    work: Sequence[Work] = (),
    title: str = "",
    *,
    now: float | None = None,
) -> None:
    """Write the timeline of *slices* and *work* to *path*, plotly's code included.

    Slices under way are drawn up to *now*, by default the last moment that is known. Raises
    `ModuleNotFoundError` where plotly is not installed (extra `timeline`), `OSError` if *path* cannot be
    written.
    """
    body = figure(slices, work, title, now).to_html(
        full_html=False,
        include_plotlyjs=True,
        config={"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]},
    )
    Path(path).write_text(_PAGE.format(title=html.escape(title or "Turns on the devices"), body=body))
