"""`interleave status`: who holds the devices, who waits, whose state is where."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
from google.protobuf.message import Message

from slurm_interleave.client.cli import render
from slurm_interleave.client.cli.fields import DURATION, LIST, RIGHT_TEXT, TEXT, Column, Field, shown
from slurm_interleave.client.cli.link import orchestrator
from slurm_interleave.client.cli.query import source_options
from slurm_interleave.client.cli.times import time_text
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
    nodes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    reason: str = ""


_COLUMNS: tuple[Column[Line], ...] = (
    Column("GROUP", "group", TEXT, lambda line: line.group),
    Column("STATE", "its state", TEXT, lambda line: line.state),
    Column("JOBID", "member", RIGHT_TEXT, lambda line: line.job_id),
    Column("USER", "its owner", TEXT, lambda line: line.user),
    Column("ROLE", "trainer or sampler", TEXT, lambda line: line.role),
    Column("DOES", "what it does", TEXT, lambda line: line.does),
    Column("PHASE", "named at the acquire", TEXT, lambda line: line.phase),
    Column("TIME", "for how long", RIGHT_TEXT, lambda line: _age(line.since_s)),
    Column("NODES", "nodes of its devices", LIST, lambda line: line.nodes),
    Column("DEVICES", "node/index", LIST, lambda line: line.devices),
    Column("REASON", "why it is faulted, or waits", TEXT, lambda line: line.reason),
)


@click.command()
@click.argument("group", required=False)
@click.option("--json", "json_", is_flag=True, help="JSON, with the names of interleave_v1.proto.")
@click.option("-n", "--noheader", is_flag=True, help="No headings.")
@source_options
def status(group: str | None, json_: bool, noheader: bool, config: str | None, address: str | None) -> None:
    """Show the groups that you may see, or GROUP alone, and what each member does now.

    A member holds the devices, waits for them, is warm (yielded, its state still on the devices), saved (its
    state is in host memory), faulted, or idle (nothing on a device).
    """
    name = parse_group_name(group) if group else ""
    with orchestrator(config, address) as link:
        reply = link.status(name)
    if json_:
        click.echo(json.dumps(_as_dict(reply), indent=2))
        return
    fields = [Field(column, None, column.kind.right) for column in _COLUMNS]
    lines = list(_lines(reply, time.time()))
    for text in render.table(fields, lines, heading=not noheader, limit=render.terminal_width()):
        click.echo(text)
    for node in reply.nodes:
        for seen in node.trespasses:
            click.echo(_trespass(node.name, seen), err=True)
        if not node.connected:
            click.echo(f"node {node.name}: its agent has been away since {time_text(node.since)}", err=True)


def _lines(reply: pb.StatusReply, now: float) -> Iterator[Line]:
    for group in reply.groups:
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
        nodes=tuple(context.node for context in member.contexts),
        devices=tuple(f"{context.node}/{i}" for context in member.contexts for i in context.devices),
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
