"""`interleave timeline`: the turns of jobs as a picture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from slurm_interleave.client import timeline as drawing
from slurm_interleave.client.cli import entry, times
from slurm_interleave.client.cli.query import parse_query, query_options, source_options
from slurm_interleave.client.cli.words import OneOf
from slurm_interleave.client.core.errors import BadArgument


@click.command(epilog=f"TIME is {times.FORMS}.", short_help="Draw who held, waited and switched when.")
@click.option(
    "-o", "--output", required=True, metavar="FILE", type=click.Path(dir_okay=False, path_type=Path)
)
@click.option(
    "--format",
    "form",
    type=OneOf(drawing.FORMS),
    help="A page, a picture, or a trace for ui.perfetto.dev; default: what FILE ends with (.html, .svg, "
    ".png, .pftrace), a page where it has no ending.",
)
@query_options
@click.option(
    "--work",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Intervals of work that simulated devices recorded (work.jsonl); may be given several times.",
)
@click.option("--title", default="", help="Heading.")
@source_options
def timeline(output: Path, work: tuple[Path, ...], form: str | None, title: str, **options: Any) -> None:
    """Draw who held, waited and switched when, as one file that needs nothing else."""
    slices = list(parse_query(options, time.time()).fetch())
    if not slices:
        raise BadArgument(
            "no slices match, so there is nothing to draw; look further back with -S, or name -j"
        )
    intervals = [interval for path in work for interval in drawing.read_work(path)]
    try:
        drawing.write_timeline(output, slices, intervals, title, form=form or drawing.form_of(output))
    except ModuleNotFoundError as error:
        raise BadArgument(entry.missing(error.name or "vl-convert-python", "timeline")) from None
    click.echo(f"{output}: {len(slices)} slices of {len({item.job_id for item in slices})} jobs")
