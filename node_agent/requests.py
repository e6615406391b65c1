"""What the prolog says becomes a `Request` here, once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from slurm_interleave.client.core.errors import BadArgument, BadName
from slurm_interleave.client.core.names import excerpt, parse_group_name, parse_job_id, parse_profile_name
from slurm_interleave.client.core.values import PRIORITY_MAX, SLOWDOWN_MAX, UID_MAX, parse_label, parse_number
from slurm_interleave.node_agent.state import Request, Reservation

_MAX_WAIT_S = 366 * 86400
_ROLE = re.compile(r"[A-Za-z0-9._-]{0,63}")


def parse_job(raw: Mapping[str, Any]) -> str:
    """Return the job's id. Raises `BadName`."""
    return parse_job_id(str(raw.get("job", "")))


def parse(
    raw: Mapping[str, Any], reservation: Reservation | None, node: str, known: Mapping[int, str]
) -> Request:
    """Return the request; *reservation* has the last word on the job's group and role.

    The prolog knows these from what the user sent, which another component of the job may have lent him.
    *known* are the UUIDs of the node's devices by their index. Raises `BadName`, `BadArgument`.
    """
    job = parse_job(raw)
    devices = raw.get("devices") or (reservation.devices if reservation else None)
    if not devices:
        raise BadArgument(
            f"node {node}: job {job}: neither Slurm nor the orchestrator named its devices; check that "
            "interleaved runs with [placement] enabled, and that this agent reaches it, then requeue the job"
        )
    if not isinstance(devices, (list, tuple)):
        raise BadArgument(f"devices: {excerpt(devices)} is not a list of whole numbers or UUIDs")
    indices = tuple(sorted({_index(device, known) for device in devices}))
    if strange := set(indices) - set(known):
        raise BadArgument(
            f"node {node}: job {job}: there is no device {min(strange)}; there are {len(known)}, from 0"
        )
    said, slow = raw.get("restarts"), raw.get("max_slowdown")
    return Request(
        job=job,
        group=parse_group_name(reservation.group if reservation else str(raw.get("group") or "")),
        role=_role(reservation.role if reservation else str(raw.get("role") or "")),
        devices=indices,
        uid=parse_number(raw.get("uid"), "uid", UID_MAX),
        gid=parse_number(raw.get("gid"), "gid", UID_MAX),
        user=parse_label(str(raw.get("user") or "")),
        account=parse_label(str(raw.get("account") or "")),
        partition=parse_label(str(raw.get("partition") or "")),
        nodes=reservation.nodes if reservation else (),
        restarts=None if said in (None, "") else parse_number(said, "restarts", PRIORITY_MAX),
        priority=parse_number(raw.get("priority") or 0, "priority", PRIORITY_MAX, -PRIORITY_MAX),
        max_wait_s=parse_number(raw.get("max_wait") or 0, "max_wait", _MAX_WAIT_S),
        profile=parse_profile_name(str(raw.get("profile") or "")),
        max_slowdown=None if slow in (None, "") else parse_number(slow, "max_slowdown", SLOWDOWN_MAX),
    )


def _index(device: Any, known: Mapping[int, str]) -> int:
    """Return the index of a device that is named by it, or by its UUID or the begin of it, as CUDA does."""
    if not isinstance(device, str) or device.isdecimal():
        return parse_number(device, "devices", UID_MAX)
    called = [index for index, uuid in known.items() if device and uuid.lower().startswith(device.lower())]
    if len(called) != 1:
        there = ", ".join(known.values())
        raise BadArgument(
            f"devices: {excerpt(device)} is the UUID of {len(called)} devices here; there are {there}"
        )
    return called[0]


def _role(text: str) -> str:
    if not _ROLE.fullmatch(text):
        raise BadName(
            f"role {excerpt(text)} is not allowed; allowed are trainer, sampler, or letters and digits"
        )
    return text
