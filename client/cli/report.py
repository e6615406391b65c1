"""The click command behind `sinterleave`."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import click

from slurm_interleave.client.cli import render, times
from slurm_interleave.client.cli.columns import COLUMNS, DEFAULT_FORMAT
from slurm_interleave.client.cli.fields import Field, by_name, parse_format
from slurm_interleave.client.cli.query import Query, parse_query, query_options, source_options
from slurm_interleave.client.cli.rows import Row, of_slice, per_job


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"TIME is {times.FORMS}.",
)
@query_options
@click.option(
    "-o",
    "--format",
    "format_",
    envvar="SINTERLEAVE_FORMAT",
    metavar="FIELD[%WIDTH],...",
    help="Fields to show, a negative width to align left; SINTERLEAVE_FORMAT if not given.",
)
@click.option("-X", "--allocations", is_flag=True, help="One line for each job, summed, not for each slice.")
@click.option("-P", "--parsable2", is_flag=True, help="Values with | between them, in full.")
@click.option("-p", "--parsable", is_flag=True, help="The same with a | at the end of the line too.")
@click.option("--delimiter", default="|", metavar="TEXT", help="What stands between values for -P and -p.")
@click.option("-n", "--noheader", is_flag=True, help="No headings.")
@click.option("--json", "json_", is_flag=True, help="JSON; all fields unless -o names some.")
@click.option("-e", "--helpformat", is_flag=True, help="List the fields and exit.")
@source_options
@click.version_option(None, "-V", "--version", package_name="slurm-interleave", prog_name="sinterleave")
def command(format_: str | None, helpformat: bool, allocations: bool, **options: Any) -> None:
    """Show who held the devices of an interleave group, when, and what the switches cost."""
    if helpformat:
        _print(f"{column.name:<12} {column.help}" for column in COLUMNS)
        return
    everything = ",".join(column.name for column in COLUMNS)
    default = everything if options["json_"] else DEFAULT_FORMAT
    fields = parse_format(format_ or default, by_name(COLUMNS))
    now = time.time()
    query = parse_query(options, now)
    _show(fields, _jobs(query, now) if allocations else _slices(query, now), options)


def _slices(query: Query, now: float) -> list[Row]:
    return [of_slice(item, now) for item in query.fetch()]


def _jobs(query: Query, now: float) -> list[Row]:
    """Return one row for each job; the state that is asked for is then the job's, not that of a slice."""
    jobs = per_job(_slices(query.any_state(), now), now)
    return [row for row in jobs if not query.states or row.state in query.states]


def _show(fields: list[Field[Row]], rows: list[Row], options: dict[str, Any]) -> None:
    heading = not options["noheader"]
    if options["json_"]:
        click.echo(render.as_json("slices", fields, rows))
    elif options["parsable"] or options["parsable2"]:
        trailing = options["parsable"] and not options["parsable2"]
        delimiter = options["delimiter"]
        _print(render.parsable(fields, rows, heading=heading, delimiter=delimiter, trailing=trailing))
    else:
        _print(render.table(fields, rows, heading=heading, limit=render.terminal_width()))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
