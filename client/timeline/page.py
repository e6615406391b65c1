"""The chart as a file: a page that needs no network, or a picture for a paper."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.timeline.around import TITLE
from slurm_interleave.client.timeline.draw import chart
from slurm_interleave.client.timeline.perfetto import trace
from slurm_interleave.client.timeline.work import Work
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

_RELEASE = "6.1"  # of Vega-Lite, of those that vl-convert has
_PNG_SCALE = 2
# A browser moves more shapes than this more smoothly as pixels.
_SHAPES_MAX = 4000
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 12px; background: #fff; font-family: system-ui, "DejaVu Sans", sans-serif }}
#chart {{ width: 100% }}
p {{ color: #52606d; font-size: 13px }}
</style>
</head>
<body>
<div id="chart"></div>
<p>Wheel: closer or farther. Drag: move. Double-click: see all again. Point at a bar: its figures.</p>
<script>{library}</script>
<script>
const actions = {{export: true, source: false, compiled: false, editor: false}};
vegaEmbed("#chart", {chart}, {{renderer: "{renderer}", actions}})
  .then((shown) => {{ window.chart = shown; }}, (error) => {{ document.body.prepend(String(error)); }});
</script>
</body>
</html>
"""


def write_timeline(
    path: Path | str,
    slices: Sequence[pb.Slice],
    work: Sequence[Work] = (),
    title: str = "",
    *,
    form: str = "html",
    now: float | None = None,
) -> None:
    """Write the timeline of *slices* and *work* to *path*, in one of `FORMS`.

    Slices under way are drawn up to *now*, by default the last moment that is known. Raises
    `ModuleNotFoundError` where what draws is not installed (extra `timeline`), `OSError` if *path* cannot be
    written.
    """
    Path(path).write_bytes(FORMS[form](slices, work, title, now))


def form_of(path: Path) -> str:
    """Return the form that the name of *path* ends with; a page, where it has no ending.

    Raises `BadArgument` where it ends otherwise, as in .pdf.
    """
    form = _ENDINGS.get(path.suffix.lower())
    if form is None:
        known = ", ".join(filter(None, _ENDINGS))
        raise BadArgument(f"{path} ends in {path.suffix}; known are {known}; or say --format")
    return form


def _page(slices: Sequence[pb.Slice], work: Sequence[Work], title: str, now: float | None) -> bytes:
    import vl_convert

    picture = chart(slices, work, title, now) | {
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
    }
    # In a script, HTML sees the end of the script before it sees text in quotes.
    text = json.dumps(picture, separators=(",", ":")).replace("<", "\\u003c")
    renderer = "svg" if len(picture["layer"][0]["data"]["values"]) <= _SHAPES_MAX else "canvas"
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", _RELEASE)
    page = _PAGE.format(title=html.escape(title or TITLE), library=library, chart=text, renderer=renderer)
    return page.encode()


def _svg(slices: Sequence[pb.Slice], work: Sequence[Work], title: str, now: float | None) -> bytes:
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(chart(slices, work, title, now), vl_version=_RELEASE)
    return svg.encode()


def _png(slices: Sequence[pb.Slice], work: Sequence[Work], title: str, now: float | None) -> bytes:
    import vl_convert

    png: bytes = vl_convert.vegalite_to_png(
        chart(slices, work, title, now), vl_version=_RELEASE, scale=_PNG_SCALE
    )
    return png


_Form = Callable[[Sequence[pb.Slice], Sequence[Work], str, "float | None"], bytes]
FORMS: dict[str, _Form] = {"html": _page, "svg": _svg, "png": _png, "perfetto": trace}
_ENDINGS = {
    "": "html",
    ".html": "html",
    ".svg": "svg",
    ".png": "png",
    ".pftrace": "perfetto",
    ".perfetto-trace": "perfetto",
}
