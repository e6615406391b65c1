"""How groups and members look from outside."""

from __future__ import annotations

from collections.abc import Mapping

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.trespass import Trespass
from slurm_interleave.sql.rows import Key, Part


def group_status(core: Core, group: str, at: float) -> pb.GroupStatus:
    """Return all that is known of *group* now."""
    state, since = core.standings.since(group)
    members = core.state.groups.get(group, ())
    claims = dict.fromkeys(core.state.claims[key] for key in members if key in core.state.claims)
    places, waits = core.turns.places(claims, at), core.forecast.waits(claims, at)
    starts = {key: at + wait_s for key, wait_s in waits.items()}
    return pb.GroupStatus(
        name=group,
        state=state.value,
        state_since=since,
        members=[_member(core, key, places, starts) for key in members],
    )


def _member(
    core: Core, key: Key, places: Mapping[Key, tuple[int, str]], starts: Mapping[Key, float]
) -> pb.MemberStatus:
    state = core.state
    member, lease, claim = state.members[key], state.leases.get(key), state.claims.get(key)
    status = pb.MemberStatus(job_id=key.job_id, user=member.user, role=member.role, fault=member.fault)
    status.priority = state.priorities.get(key.job_id, 0)
    if key.job_id in state.pauses.suspended:
        status.reason = "suspended in Slurm"
    if lease is not None:
        status.epoch, status.held_since, status.phase = lease.epoch, lease.granted, lease.phase
    if claim is not None:
        waiter = state.waiters[claim]
        ahead, reason = places[claim]
        status.queue_place, status.reason = ahead + 1, status.reason or reason
        status.waiting_since, status.phase = waiter.requested, waiter.phase
        status.expected_start = starts.get(claim, 0.0)
    parts, cautions = state.parts.get(key, {}), state.cautions.get(key, {})
    seen = [f"{node}: {why}" for node, why in cautions.items() if why and node in parts]
    status.reason = "; ".join([*filter(None, [status.reason]), *seen])
    for part in state.parts.get(key, {}).values():
        status.contexts.append(context_status(part))
    return status


def context_status(part: Part) -> pb.ContextStatus:
    """Return where the device state of a member is on one node."""
    return pb.ContextStatus(node=part.node, devices=part.devices, state=part.context.value, bytes=part.bytes)


def trespass_status(seen: Trespass) -> pb.Trespass:
    """Return a process that is where it must not be."""
    job_id = seen.key.job_id if seen.key is not None else ""
    return pb.Trespass(device=seen.device, pid=seen.pid, job_id=job_id, since=seen.since, reason=seen.reason)
