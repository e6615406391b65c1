"""`interleave status`: who holds the devices, who waits, whose state is where."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import click
from google.protobuf.message import Message

from slurm_interleave.client.cli import render
from slurm_interleave.client.cli.fields import (
    BYTES,
    DURATION,
    LIST,
    RIGHT_TEXT,
    TEXT,
    WORD,
    Column,
    Field,
    shown,
)
from slurm_interleave.client.cli.link import orchestrator
from slurm_interleave.client.cli.query import source_options
from slurm_interleave.client.cli.times import time_text
from slurm_interleave.client.cli.watch import Groups, follow, is_terminal
from slurm_interleave.client.core.names import parse_group_name
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import interleave_v1_pb2 as pb

# Of a job with several nodes, the context that is worth telling comes first.
_TELLING = (
    (Context.FAULTED, "faulted"),
    (Context.UNKNOWN, "unknown"),
    (Context.SAVING, "is saved"),
    (Context.RESTORING, "is restored"),
    (Context.RESIDENT, "warm"),
    (Context.SAVED, "saved"),
)

_HEAD = 2  # lines of a table's heading


@dataclass(frozen=True)
class Line:
    """One line of the status: a member of a group, or a group without members."""

    group: str
    state: str
    job_id: str = ""
    user: str = ""
    role: str = ""
    does: str = ""
    phase: str = ""
    since_s: float | None = None
    rest_s: float | None = None
    devices: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    reason: str = ""


COLUMNS: tuple[Column[Line], ...] = (
    Column("GROUP", "group", TEXT, lambda line: line.group),
    Column("STATE", "its state", TEXT, lambda line: line.state),
    Column("JOBID", "member", RIGHT_TEXT, lambda line: line.job_id),
    Column("USER", "its owner", TEXT, lambda line: line.user),
    Column("ROLE", "trainer or sampler", TEXT, lambda line: line.role),
    Column("DOES", "what it does", WORD, lambda line: line.does),
    Column("PHASE", "named at the acquire", TEXT, lambda line: line.phase),
    Column("TIME", "for how long", RIGHT_TEXT, lambda line: _age(line.since_s)),
    Column("EXPECTED", "until its turn, by learned lengths", RIGHT_TEXT, lambda line: _age(line.rest_s)),
    Column("DEVICES", "node/index", LIST, lambda line: line.devices),
    Column("CONTEXTS", "where its state is, by node", LIST, lambda line: line.contexts),
    Column("REASON", "why it is faulted or waits, or cannot be saved", TEXT, lambda line: line.reason),
)


@click.command(short_help="Show groups, and what each of their jobs does now.")
@click.argument("group", required=False)
@click.option("--json", "json_", is_flag=True, help="JSON, with the names of interleave_v1.proto.")
@click.option("-n", "--noheader", is_flag=True, help="No headings.")
@click.option("-w", "--watch", "watch_", is_flag=True, help="Again at each change, until Ctrl-C.")
@source_options
def status(
    group: str | None, json_: bool, noheader: bool, watch_: bool, config: str | None, address: str | None
) -> None:
    """Show the groups that you may see, or GROUP alone, and what each member does now.

    A member holds the devices, waits for them, is warm (yielded, its state still on the devices), saved (its
    state is in host memory), faulted, or idle (nothing on a device). EXPECTED is the time until its turn by
    the usual lengths of the phases and switches before it, where all of them are known. CONTEXTS has where
    its state is on each node, and the bytes of what is saved there.

    With --watch a terminal shows the present state; elsewhere each change is a line that begins with its
    time, or with --json an object.
    """
    name = parse_group_name(group) if group else ""
    if watch_:
        _watch(name, json_, noheader, follow(config, address, name))
        return
    with orchestrator(config, address) as link:
        reply = link.status(name)
    if json_:
        click.echo(json.dumps(_as_dict(reply), indent=2))
        return
    for text in _table(member_lines(reply.groups, reply.now or time.time()), heading=not noheader):
        click.echo(text)
    for found in reply.differences:
        click.echo(
            f"node {found.node}: {found.gres}: {found.booked} by the book, {found.used} in use by Slurm",
            err=True,
        )
    for node in reply.nodes:
        for seen in node.trespasses:
            click.echo(_trespass(node.name, seen), err=True)
        if not node.connected:
            click.echo(f"node {node.name}: its agent has been away since {time_text(node.since)}", err=True)


def _watch(name: str, json_: bool, noheader: bool, news: Generator[Groups | None, None, None]) -> None:
    """Show *news* until Ctrl-C, which is how one ends it."""
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(news):
        if json_:
            _write_objects(news)
        elif is_terminal():
            _draw(news, name, heading=not noheader)
        else:
            _write_lines(news, heading=not noheader)


def _write_objects(news: Iterable[Groups | None]) -> None:
    for groups in filter(None, news):
        changed = [_as_dict(groups.now[name]) for name in groups.changed]
        print(json.dumps({"time": time.time(), "groups": changed, "gone": groups.gone}), flush=True)


def _draw(news: Iterable[Groups | None], name: str, *, heading: bool) -> None:
    from rich.live import Live
    from rich.text import Text

    groups, nothing = Groups(), f"no group {name}" if name else "no group"
    with Live(auto_refresh=False) as live:
        for update in news:
            groups = update or groups
            lines = member_lines(groups.now.values(), time.time())
            table = "\n".join(_table(lines, heading=heading)) if groups.now else nothing
            live.update(Text(table, no_wrap=True), refresh=True)


def _write_lines(news: Iterable[Groups | None], *, heading: bool) -> None:
    """Write what each member of a changed group does, if that is new."""
    written: dict[tuple[str, str], Line] = {}
    for groups in filter(None, news):
        now, fresh = time.time(), []
        for line in _present(groups, written, now):
            key = (line.group, line.job_id)
            timeless = replace(line, since_s=None, rest_s=None)
            if written.get(key) != timeless:
                fresh.append(line)
                written[key] = timeless
        head = _HEAD if heading and fresh else 0
        for number, text in enumerate(_table(fresh, heading=heading) if fresh else ()):
            print(f"{time_text(now) if number >= head else '':19} {text}", flush=True)
        heading = heading and not head
        written = {key: line for key, line in written.items() if line.does != "gone"}


def _present(groups: Groups, written: Iterable[tuple[str, str]], now: float) -> list[Line]:
    """Return the lines of the changed groups, and one for each member or group that is gone."""
    lines = list(member_lines([groups.now[name] for name in groups.changed], now))
    here = {(line.group, line.job_id) for line in lines}
    looked_at = {*groups.changed, *groups.gone}
    states = {line.group: line.state for line in lines}
    gone = [key for key in written if key[0] in looked_at and key not in here]
    return lines + [Line(group, states.get(group, ""), job, does="gone") for group, job in gone]


def _table(lines: Iterable[Line], *, heading: bool) -> Iterator[str]:
    fields = [Field(column, None, column.kind.right) for column in COLUMNS]
    return render.table(fields, list(lines), heading=heading, limit=render.terminal_width())


def member_lines(groups: Iterable[pb.GroupStatus], now: float) -> Iterator[Line]:
    """Yield a line for each member of *groups*, and for each group without any."""
    for group in sorted(groups, key=lambda group: group.name):
        if not group.members:
            yield Line(group.name, group.state)
        for member in group.members:
            yield _line(group, member, now)


def _line(group: pb.GroupStatus, member: pb.MemberStatus, now: float) -> Line:
    since = member.held_since if member.epoch else member.waiting_since
    return Line(
        group=group.name,
        state=group.state,
        job_id=member.job_id,
        user=member.user,
        role=member.role,
        does=_does(member),
        phase=member.phase,
        since_s=max(0.0, now - since) if since else None,
        rest_s=max(0.0, member.expected_start - now) if member.expected_start else None,
        devices=tuple(f"{context.node}/{i}" for context in member.contexts for i in context.devices),
        contexts=tuple(map(_context, member.contexts)),
        reason=member.fault or member.reason,
    )


def _does(member: pb.MemberStatus) -> str:
    if member.fault:
        return "faulted"
    if member.epoch:
        return "holds"
    if member.queue_place:
        return f"waits ({member.queue_place})"
    states = {context.state for context in member.contexts}
    return next((text for state, text in _TELLING if state.value in states), "idle")


def _context(context: pb.ContextStatus) -> str:
    size = f":{BYTES.table(context.bytes)}" if context.bytes else ""
    return f"{context.node}:{context.state}{size}"


def _trespass(node: str, seen: pb.Trespass) -> str:
    whose = f" of job {shown(seen.job_id)}" if seen.job_id else ""
    since = time_text(seen.since)
    where = f"node {node}: trespass on device {seen.device}"
    return f"{where}: process {seen.pid}{whose}: {seen.reason} (since {since})"


def _age(since_s: float | None) -> str:
    return "" if since_s is None else DURATION.table(since_s)


def _as_dict(message: Message) -> dict[str, Any]:
    """Return *message* with every field, numbers as numbers (protobuf's own JSON has int64 as text)."""
    return {field.name: _plain(getattr(message, field.name)) for field in message.DESCRIPTOR.fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return _as_dict(value)
    if isinstance(value, (str, int, float)):
        return value
    return [_plain(item) for item in value]
