"""The click command behind `sinterleave`."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

import click

from slurm_interleave.client.cli import render, summary, times
from slurm_interleave.client.cli.columns import COLUMNS, DEFAULT_FORMAT
from slurm_interleave.client.cli.fields import BYTES, Column, Field, by_name, bytes_in, parse_format
from slurm_interleave.client.cli.query import Query, parse_query, query_options, source_options
from slurm_interleave.client.cli.rows import Row, of_day, of_slice, per_job
from slurm_interleave.client.cli.words import OneOf
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

Item = TypeVar("Item")
_AT_ONCE = 1000
_FORMATS = ("json_", "yaml", "csv_")


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
@click.option("-l", "--long", "long_", is_flag=True, help="All fields.")
@click.option("-X", "--allocations", is_flag=True, help="One line for each job, summed, not for each slice.")
@click.option(
    "--summary",
    "summary_key",
    is_flag=False,
    flag_value="group",
    type=OneOf(summary.KEYS),
    help="What sharing saved or lost, and the waiting paid for it, by group or another.",
)
@click.option("-P", "--parsable2", is_flag=True, help="Values with | between them, in full.")
@click.option("-p", "--parsable", is_flag=True, help="The same with a | at the end of the line too.")
@click.option("--delimiter", default="|", metavar="TEXT", help="What stands between values for -P and -p.")
@click.option("-n", "--noheader", is_flag=True, help="No headings.")
@click.option("--units", type=OneOf("KMGTP"), help="Show bytes in this unit.")
@click.option("--json", "json_", is_flag=True, help="JSON; all fields unless -o names some.")
@click.option("--yaml", is_flag=True, help="YAML; all fields unless -o names some.")
@click.option("--csv", "csv_", is_flag=True, help="Comma-separated values, quoted where needed.")
@click.option("-e", "--helpformat", is_flag=True, help="List the fields and exit.")
@source_options
@click.version_option(None, "-V", "--version", package_name="slurm-interleave", prog_name="sinterleave")
def command(helpformat: bool, summary_key: str | None, allocations: bool, **options: Any) -> None:
    """Show who held the devices of an interleave group, when, and what the switches cost."""
    listed: Sequence[Column[Any]] = summary.columns(summary_key) if summary_key else COLUMNS
    if helpformat:
        _print(f"{column.name:<12} {column.help}" for column in listed)
        return
    if sum(options[name] for name in _FORMATS) > 1:
        raise BadArgument("--json, --yaml and --csv exclude each other")
    now = time.time()
    query = parse_query(options, now)
    if summary_key is not None:
        # SINTERLEAVE_FORMAT is of the other fields.
        chosen = options["format_"] if _given("format_") else None
        fields = _fields(chosen, listed, f"{summary_key},{summary.DEFAULT}", options)
        _show("summary", fields, summary.summarize(_sums(query, now), summary_key), options)
        return
    fields = _fields(options["format_"], listed, DEFAULT_FORMAT, options)
    if allocations:
        _show("slices", fields, _jobs(query, now), options)
        return
    with closing(_slices(query, now)) as slices:
        _show("slices", fields, slices, options)


def _given(parameter: str) -> bool:
    source = click.get_current_context().get_parameter_source(parameter)
    return source is click.core.ParameterSource.COMMANDLINE


def _fields(
    chosen: str | None, columns: Sequence[Column[Item]], default: str, options: dict[str, Any]
) -> list[Field[Item]]:
    if options["json_"] or options["yaml"] or options["long_"]:
        default = ",".join(column.name for column in columns)
    try:
        fields = parse_format(default if options["long_"] else chosen or default, by_name(columns))
    except BadArgument as error:
        raise error if _given("format_") else BadArgument(f"SINTERLEAVE_FORMAT: {error}") from None
    unit = options["units"]
    return [_in_unit(field, unit) if unit and field.column.kind is BYTES else field for field in fields]


def _in_unit(field: Field[Item], unit: str) -> Field[Item]:
    return replace(field, column=replace(field.column, kind=bytes_in(unit)))


def _slices(query: Query, now: float) -> Generator[Row, None, None]:
    with closing(query.fetch()) as slices:
        yield from (of_slice(item, now) for item in slices)


def _sums(query: Query, now: float) -> Iterator[Row]:
    """Yield sums of the turns that ended, and those that last or wait."""
    for item in query.fetch_sums():
        yield of_day(item) if isinstance(item, pb.DaySum) else of_slice(item, now)


def _jobs(query: Query, now: float) -> list[Row]:
    """Return one row for each job; the state that is asked for is then the job's, not that of a slice."""
    jobs = per_job(_sums(query.any_state(), now), now)
    return [row for row in jobs if not query.states or row.state in query.states]


def _show(name: str, fields: list[Field[Item]], rows: Iterable[Item], options: dict[str, Any]) -> None:
    heading = not options["noheader"]
    if options["json_"]:
        click.echo(render.as_json(name, fields, rows))
    elif options["yaml"]:
        _print(render.as_yaml(name, fields, rows))
    elif options["csv_"]:
        _print(render.as_csv(fields, rows, heading=heading))
    elif options["parsable"] or options["parsable2"]:
        trailing = options["parsable"] and not options["parsable2"]
        delimiter = options["delimiter"]
        _print(render.parsable(fields, rows, heading=heading, delimiter=delimiter, trailing=trailing))
    else:
        _print(render.table(fields, rows, heading=heading, limit=render.terminal_width()))


def _print(lines: Iterable[str]) -> None:
    """Write *lines*, many at a time, since each write is flushed."""
    rest = iter(lines)
    while some := list(islice(rest, _AT_ONCE)):
        click.echo("\n".join(some))
