"""The options that choose slices, with sacct's letters; both commands that read slices share them."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO, TypeVar

import click

from slurm_interleave.client.cli import job_lists, times
from slurm_interleave.client.cli.link import orchestrator
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.names import parse_group_name
from slurm_interleave.client.core.near import hint
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

Command = TypeVar("Command", bound=Callable[..., Any])
_SHORT = {"PD": "WAITING", "W": "WAITING", "R": "RUNNING", "Y": "YIELDED", "JE": "JOB_ENDED", "RV": "REVOKED"}
_SHORT |= {"AB": "ABANDONED", "F": "FAULTED", "P": "PAUSED"}


@dataclass(frozen=True)
class Query:
    """Which slices to show, and from where."""

    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    start: float = 0.0  # 0: no limit
    end: float = 0.0
    config_file: str | None = None
    address: str | None = None
    file: TextIO | None = None  # JSON lines instead of the orchestrator

    def request(self) -> pb.ListSlicesRequest:
        """Return the query as the orchestrator reads it."""
        return pb.ListSlicesRequest(
            job_ids=self.jobs,
            users=self.users,
            groups=self.groups,
            accounts=self.accounts,
            partitions=self.partitions,
            nodes=self.nodes,
            states=self.states,
            start=self.start,
            end=self.end,
        )

    def any_state(self) -> Query:
        """Return the same query without its states."""
        return replace(self, states=())

    def fetch(self) -> Generator[pb.Slice, None, None]:
        """Yield the slices as they come, oldest first."""
        if self.file is not None:
            request = self.request()
            yield from (item for item in read_json_lines(self.file) if matches(request, item))
            return
        with orchestrator(self.config_file, self.address) as link:
            yield from link.list_slices(self.request())

    def fetch_sums(self) -> Iterator[pb.Slice | pb.DaySum]:
        """Yield sums by member and day of the slices that have ended, and the others."""
        if self.file is not None:
            yield from self.fetch()
            return
        with orchestrator(self.config_file, self.address) as link:
            yield from link.list_sums(self.request())


def query_options(command: Command) -> Command:
    """Add the options that choose slices to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def source_options(command: Command) -> Command:
    """Add the options that say where the orchestrator is."""
    for option in reversed(_SOURCE):
        command = option(command)
    return command


def parse_query(options: dict[str, Any], now: float) -> Query:
    """Return the query that the values of `query_options` and `source_options` make.

    Raises `BadArgument` or `BadName`, with what is understood.
    """
    jobs = job_lists.parse_jobs(options["jobs"])
    start, end = options["starttime"], options["endtime"]
    since = times.parse_time(start, now) if start else (0.0 if jobs else times.midnight(now))
    until = times.parse_time(end, now) if end else 0.0
    if until and until < since:
        raise BadArgument(f"the end, {times.time_text(until)}, is before the start, {times.time_text(since)}")
    return Query(
        jobs=jobs,
        users=tuple(_user(word) for word in _words(options["user"])),
        groups=tuple(parse_group_name(word) for word in _words(options["group"])),
        accounts=tuple(_words(options["accounts"])),
        partitions=tuple(_words(options["partition"])),
        nodes=tuple(_nodes(options["nodelist"])),
        states=tuple(_state(word) for word in _words(options["state"])),
        start=since,
        end=until,
        config_file=options["config"],
        address=options["address"],
        file=options["from_json"],
    )


def matches(request: pb.ListSlicesRequest, item: pb.Slice) -> bool:
    """Return whether the orchestrator would list *item* for *request*."""
    pairs = (
        (request.job_ids, item.job_id),
        (request.users, item.user),
        (request.groups, item.group),
        (request.accounts, item.account),
        (request.partitions, item.partition),
        (request.states, item.state),
    )
    on_a_node = not request.nodes or not set(request.nodes).isdisjoint(item.nodes.split(","))
    end = item.end or time.time()
    begun = not request.end or item.requested < request.end
    return (
        begun
        and on_a_node
        and end > request.start
        and all(not wanted or value in wanted for wanted, value in pairs)
    )


def read_json_lines(lines: Iterable[str]) -> Iterator[pb.Slice]:
    """Yield the slices of *lines*, one JSON object a line. Raises `BadArgument` with the line's number."""
    from google.protobuf import json_format  # a tenth of the start of every other report

    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield json_format.Parse(line, pb.Slice())
            except json_format.ParseError as error:
                raise BadArgument(f"line {number} is not a slice: {error}") from None


def _words(values: Sequence[str]) -> list[str]:
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def _nodes(values: Sequence[str]) -> list[str]:
    return [
        name for value in values for word in job_lists.split(value) for name in job_lists.names(word, "nodes")
    ]


def _user(word: str) -> str:
    if not word.isdecimal():
        return word
    try:
        return pwd.getpwuid(int(word)).pw_name
    except (KeyError, OverflowError):
        raise BadArgument(f"no user has the number {word}") from None


def _state(word: str) -> str:
    known = [state.value for state in SliceState]
    name = _SHORT.get(word.upper(), word.upper())
    if name in known:
        return name
    raise BadArgument(f"no state {word!r}{hint(name, known)}; states are {', '.join(known)}")


_OPTIONS = (
    click.option(
        "-j",
        "--jobs",
        multiple=True,
        metavar="ID,...",
        help="Only these jobs, of whatever day: 123, 123-130, 123_[1-3] of an array, "
        "123+0 of a heterogeneous job.",
    ),
    click.option(
        "-a",
        "--allusers",
        is_flag=True,
        expose_value=False,
        help="As without it: all jobs that you may see.",
    ),
    click.option("-u", "--user", multiple=True, metavar="USER,...", help="Only these users' jobs."),
    click.option("-A", "--accounts", multiple=True, metavar="ACCOUNT,...", help="Only of these accounts."),
    click.option("-r", "--partition", multiple=True, metavar="PART,...", help="Only in these partitions."),
    click.option(
        "-N", "--nodelist", multiple=True, metavar="NODES", help="Only on these nodes: n1,gpu[2-4]."
    ),
    click.option(
        "-G", "--interleave-group", "group", multiple=True, metavar="GROUP,...", help="Only these groups."
    ),
    click.option(
        "-S",
        "--starttime",
        metavar="TIME",
        help="Only slices that ended after TIME or last; today's if neither -S nor -j is given.",
    ),
    click.option("-E", "--endtime", metavar="TIME", help="Only slices that were requested before TIME."),
    click.option(
        "-s",
        "--state",
        multiple=True,
        metavar="STATE,...",
        help="Only these states: " + ", ".join(state.value for state in SliceState) + ".",
    ),
    click.option("--from-json", type=click.File(lazy=True), hidden=True, help="Read slices from JSON lines."),
)
_SOURCE = (
    click.option("--config", metavar="FILE", help="Configuration instead of /etc/slurm/interleave.toml."),
    click.option("--address", metavar="HOST:PORT", help="The orchestrator's address."),
)
