"""What the prolog says becomes a `Request` here, once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from slurm_interleave.client.core.errors import BadArgument, BadName
from slurm_interleave.client.core.names import parse_group_name, parse_job_id
from slurm_interleave.node_agent.state import Request, Reservation

_ROLE = re.compile(r"[A-Za-z0-9._-]{0,63}")


def parse_job(raw: Mapping[str, Any]) -> str:
    """Return the job's id. Raises `BadName`."""
    return parse_job_id(str(raw.get("job", "")))


def parse(
    raw: Mapping[str, Any], reservation: Reservation | None, node: str, known: Sequence[int]
) -> Request:
    """Return the request; what it does not name comes from *reservation*. Raises `BadName`, `BadArgument`."""
    job = parse_job(raw)
    devices = raw.get("devices") or (reservation.devices if reservation else None)
    if not devices:
        raise BadArgument(
            f"node {node}: job {job}: neither Slurm nor the orchestrator named its devices; check that "
            "interleaved runs with [placement] enabled, and that this agent reaches it, then requeue the job"
        )
    indices = tuple(sorted({number(device, "devices") for device in devices}))
    if strange := set(indices) - set(known):
        raise BadArgument(
            f"node {node}: job {job}: there is no device {min(strange)}; there are {len(known)}, from 0"
        )
    return Request(
        job=job,
        group=parse_group_name(str(raw.get("group") or (reservation.group if reservation else ""))),
        role=_role(str(raw.get("role") or (reservation.role if reservation else ""))),
        devices=indices,
        uid=number(raw.get("uid"), "uid"),
        gid=number(raw.get("gid"), "gid"),
        user=str(raw.get("user") or ""),
        account=str(raw.get("account") or ""),
        partition=str(raw.get("partition") or ""),
        nodes=reservation.nodes if reservation else (),
        priority=number(raw.get("priority") or 0, "priority"),
    )


def number(raw: Any, what: str) -> int:
    """Return *raw* as a number. Raises `BadArgument`."""
    try:
        return int(raw)
    except (TypeError, ValueError):
        raise BadArgument(f"{what}: {raw!r} is not a whole number") from None


def _role(text: str) -> str:
    if not _ROLE.fullmatch(text):
        raise BadName(f"role {text!r} is not allowed; allowed are trainer, sampler, or letters and digits")
    return text
