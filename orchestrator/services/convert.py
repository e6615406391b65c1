"""Rows and reports between wire and domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, TypeVar

from slurm_interleave.client.connect import CALL_KEY
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.names import parse_group_name, parse_job_id, parse_profile_name
from slurm_interleave.client.core.states import Attendance, Context
from slurm_interleave.client.core.values import (
    PID_MAX,
    PRIORITY_MAX,
    SLOWDOWN_MAX,
    parse_label,
    parse_moment,
    parse_number,
    parse_reason,
    parse_seconds,
    parse_size,
    parse_word,
)
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.core.events import OperationDone, PartOver, Registration, Use
from slurm_interleave.sql.store import SliceFilter

_ANSWER_S = 0.02  # for an answer to reach its client
# More than any node, job or report has, and few enough that a decision about them stays quick.
_DEVICES_MAX = 1024
_INDEX_MAX = 1 << 16
_USES_MAX = 1 << 16
_NODES_MAX = 1 << 14
_GROUPS_MAX = 64
_NAMES_MAX = 1000
_Values = TypeVar("_Values", bound=Sequence[Any])


@dataclass(frozen=True)
class Hello:
    """What an agent says first of its node; *memory* of each device, and *host_bytes*, in bytes."""

    node: str
    memory: tuple[tuple[int, int], ...]
    jobs: tuple[Registration, ...]
    trespass: str
    sent: float
    host_bytes: int
    cancels: bool


def hello(said: pb.Hello) -> Hello:
    """Return what an agent says of its node. Raises `BadName` and `BadArgument`."""
    node = parse_word(said.node, "the node's name")
    memory = {
        _device(device.index): parse_size(device.memory_bytes, "a device's memory_bytes")
        for device in _few(said.devices, _DEVICES_MAX, f"node {node} names {{}} devices")
    }
    jobs = tuple(registration(job, node) for job in said.jobs)
    if len({(job.job_id, job.group) for job in jobs}) < len(jobs):
        raise BadArgument(f"node {node} names one of its jobs twice")
    sent = parse_moment(said.sent, "when a hello was sent")
    room = parse_size(said.host_bytes, "host_bytes")
    return Hello(node, tuple(memory.items()), jobs, parse_label(said.trespass), sent, room, said.cancels)


def registration(job: pb.JobReport, node: str) -> Registration:
    """Return what the agent of *node* reports. Raises `BadName` and `BadArgument`."""
    job_id = parse_job_id(job.job_id)
    return Registration(
        job_id=job_id,
        group=parse_group_name(job.group),
        attempt=parse_word(job.attempt, f"job {job_id}: its attempt"),
        devices=_devices(job_id, job.devices),
        role=parse_label(job.role),
        uid=job.uid,
        user=parse_label(job.user),
        account=parse_label(job.account),
        partition=parse_label(job.partition),
        name=parse_label(job.name),
        backend=parse_label(job.backend),
        nodes=_nodes(job_id, job.nodes, node),
        context=context(job.context),
        bytes=parse_size(job.bytes, f"job {job_id}: bytes"),
        token_sha256=_digest(job_id, job.token_sha256),
        priority=parse_number(job.priority, f"job {job_id}: priority", PRIORITY_MAX, -PRIORITY_MAX),
        fault=parse_reason(job.fault),
        attendance=_attendance(job.attendance),
        restarts=_unless_unsaid(job_id, job, "restarts", PRIORITY_MAX),
        started=parse_moment(job.started, f"job {job_id}: when it started"),
        resumed_token_sha256=_digest(job_id, job.resumed_token_sha256),
        being_saved=job.being_saved,
        profile=parse_profile_name(job.profile),
        max_slowdown=_unless_unsaid(job_id, job, "max_slowdown", SLOWDOWN_MAX),
        caution=parse_reason(job.caution),
    )


def uses(said: pb.Uses) -> tuple[Use, ...]:
    """Return who uses a node's devices. Raises `BadName` and `BadArgument`."""
    return tuple(
        Use(
            _device(use.device),
            parse_number(use.pid, "a process id", PID_MAX),
            parse_job_id(use.job_id) if use.job_id else "",
            use.working,
        )
        for use in _few(said.uses, _USES_MAX, "a look names {} processes")
    )


def part_over(over: pb.JobOver, node: str, at: float) -> PartOver:
    """Return that a job is over on *node*. Raises `BadName` and `BadArgument`."""
    job_id = parse_job_id(over.job_id)
    # Without an attempt: whichever is known.
    attempt = parse_word(over.attempt, f"job {job_id}: its attempt") if over.attempt else ""
    return PartOver(at, node, job_id, attempt)


def operation_done(done: pb.OperationDone, node: str, at: float) -> OperationDone:
    """Return how an operation on *node* ended. Raises `BadName` and `BadArgument`."""
    return OperationDone(
        at,
        node,
        parse_word(done.operation_id, "an operation's id"),
        parse_job_id(done.job_id),
        done.ok,
        context(done.context),
        parse_size(done.bytes, f"operation {done.operation_id}: bytes"),
        parse_seconds(done.seconds, f"operation {done.operation_id}: seconds"),
        parse_reason(done.error),
    )


def _devices(job_id: str, indices: Sequence[int]) -> tuple[int, ...]:
    if not indices:
        raise BadArgument(f"job {job_id} names no device")
    return tuple(map(_device, _few(indices, _DEVICES_MAX, f"job {job_id} names {{}} devices")))


def _device(index: int) -> int:
    return parse_number(index, "a device's index", _INDEX_MAX)


def _nodes(job_id: str, names: Sequence[str], node: str) -> tuple[str, ...]:
    nodes = tuple(
        parse_word(name, f"job {job_id}: the name of one of its nodes")
        for name in _few(names, _NODES_MAX, f"job {job_id} names {{}} nodes")
    )
    if nodes and node not in nodes:
        raise BadArgument(f"job {job_id} is not one of node {node}: it names {', '.join(nodes[:8])}")
    return nodes


def _digest(job_id: str, digest: bytes) -> str:
    if len(digest) not in (0, sha256().digest_size):
        raise BadArgument(f"job {job_id}: token_sha256 has {len(digest)} bytes and must have 32")
    return digest.hex()


def _few(values: _Values, maximum: int, what: str) -> _Values:
    if len(values) > maximum:
        raise BadArgument(f"{what.format(len(values))}; at most {maximum} are possible")
    return values


def context(word: str) -> Context:
    """Return the context state that an agent names; a word of a later release is unknown."""
    try:
        return Context(word)
    except ValueError:
        return Context.UNKNOWN


def _unless_unsaid(
    job_id: str, job: pb.JobReport, name: Literal["restarts", "max_slowdown"], most: int
) -> int:
    return parse_number(getattr(job, name), f"job {job_id}: {name}", most) if job.HasField(name) else -1


def _attendance(word: str) -> Attendance:
    try:
        return Attendance(word)
    except ValueError:
        return Attendance.UNKNOWN


def groups(request: pb.AcquireRequest) -> list[str]:
    """Return the groups that a job asks for at once. Raises `BadName` and `BadArgument`."""
    also = _few(request.also, _GROUPS_MAX, "the acquire names {} more groups")
    return [parse_group_name(name) for name in (request.group, *also)]


def call_name(context: Any) -> str:
    """Return the name that the client gave its acquire; empty: none. Raises `BadArgument`."""
    name = str(dict(context.invocation_metadata()).get(CALL_KEY, ""))
    return parse_word(name, CALL_KEY) if name else ""


def time_left(context: Any) -> float | None:
    """Return the seconds until an answer would miss the client's deadline; None: it has no deadline."""
    left: float | None = context.time_remaining()
    return None if left is None else max(left - _ANSWER_S, 0.0)


def slice_filter(request: pb.ListSlicesRequest, uid: int | None) -> SliceFilter:
    """Return what a report wants; *uid* limits it to one user. Raises `BadName` and `BadArgument`."""
    lists = (request.job_ids, request.users, request.groups, request.states)
    named = sum(map(len, (*lists, request.accounts, request.partitions)))
    if named > _NAMES_MAX:
        raise BadArgument(
            f"the report names {named} jobs, users, groups, states, accounts and partitions; "
            f"at most {_NAMES_MAX}"
        )
    return SliceFilter(
        job_ids=tuple(map(parse_job_id, request.job_ids)),
        users=tuple(map(parse_label, request.users)),
        groups=tuple(map(parse_group_name, request.groups)),
        states=tuple(request.states),
        accounts=tuple(map(parse_label, request.accounts)),
        partitions=tuple(map(parse_label, request.partitions)),
        nodes=tuple(_few(request.nodes, _NODES_MAX, "the report names {} nodes")),
        start=parse_moment(request.start, "start"),
        end=parse_moment(request.end, "end"),
        uid=uid,
    )
