"""Rows and reports between wire and domain."""

from __future__ import annotations

from typing import Any

from slurm_interleave.client.core.names import parse_group_name, parse_job_id
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.core.events import Registration
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.store import SliceFilter

_ANSWER_S = 0.02  # for an answer to reach its client


def registration(job: pb.JobReport) -> Registration:
    """Return what an agent reports. Raises `BadName`."""
    return Registration(
        job_id=parse_job_id(job.job_id),
        group=parse_group_name(job.group),
        attempt=job.attempt,
        devices=tuple(job.devices),
        role=job.role,
        uid=job.uid,
        user=job.user,
        account=job.account,
        partition=job.partition,
        name=job.name,
        backend=job.backend,
        nodes=tuple(job.nodes),
        context=context(job.context),
        bytes=job.bytes,
        token_sha256=bytes(job.token_sha256).hex(),
        priority=job.priority,
        fault=job.fault,
    )


def context(word: str) -> Context:
    """Return the context state that an agent names; a word of a later release is unknown."""
    try:
        return Context(word)
    except ValueError:
        return Context.UNKNOWN


def time_left(context: Any) -> float | None:
    """Return the seconds until an answer would miss the client's deadline; None: it has no deadline."""
    left: float | None = context.time_remaining()
    return None if left is None else max(left - _ANSWER_S, 0.0)


def slice_filter(request: pb.ListSlicesRequest, uid: int | None) -> SliceFilter:
    """Return what a report wants; *uid* limits it to one user."""
    return SliceFilter(
        job_ids=tuple(request.job_ids),
        users=tuple(request.users),
        groups=tuple(request.groups),
        states=tuple(request.states),
        start=request.start,
        end=request.end,
        uid=uid,
    )


def wire_slice(row: Slice) -> pb.Slice:
    """Return *row* as the report's message."""
    return pb.Slice(
        job_id=row.job_id,
        job_name=row.name,
        user=row.user,
        account=row.account,
        partition=row.partition,
        group=row.group,
        role=row.role,
        phase=row.phase,
        backend=row.backend,
        nodes=",".join(row.nodes),
        devices=row.devices,
        state=row.state.value,
        epoch=row.epoch,
        requested=row.requested,
        start=row.granted,
        end=row.ended,
        switched=row.switched,
        switch_s=row.switch_s,
        snapshot_s=row.snapshot_s,
        restore_s=row.restore_s,
        switch_bytes=row.switch_bytes,
    )
