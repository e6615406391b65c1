"""Which job of which group this process belongs to, as its environment says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_interleave.client.core.errors import BadArgument, NotRegistered
from slurm_interleave.client.core.names import excerpt
from slurm_interleave.client.core.values import parse_seconds
from slurm_interleave.client.registration import registered


@dataclass(frozen=True)
class Member:
    """Which job of which group calls, and where to."""

    job_id: str
    group: str
    node: str
    address: str
    token: str = field(repr=False)
    unregistered: str = ""  # why it could not be registered
    socket: str = ""  # of the job on its node
    max_wait_s: float = math.inf  # for a grant, where the caller sets no limit of his own


def member_of(environ: Mapping[str, str]) -> Member | None:
    """Return who calls, and register him where nobody has; None outside an interleaved job.

    Raises `BadArgument`.
    """
    group = environ.get("INTERLEAVE_GROUP", "")
    if not group or environ.get("INTERLEAVE_DISABLE", "") not in ("", "0"):
        return None
    unregistered = ""
    try:
        environ = registered(environ)
    except NotRegistered as error:  # told at the first acquire
        unregistered = str(error)
    return Member(
        job_id=environ.get("INTERLEAVE_JOB_ID") or environ.get("SLURM_JOB_ID", ""),
        group=group,
        node=environ.get("INTERLEAVE_NODE") or environ.get("SLURMD_NODENAME", "this node"),
        address=environ.get("INTERLEAVE_ORCHESTRATOR", ""),
        token=environ.get("INTERLEAVE_TOKEN", ""),
        unregistered=unregistered,
        socket=environ.get("INTERLEAVE_SOCKET", ""),
        max_wait_s=_max_wait_s(environ.get("INTERLEAVE_MAX_WAIT", "")),
    )


def _max_wait_s(text: str) -> float:
    if not text:
        return math.inf
    try:
        return parse_seconds(float(text), "INTERLEAVE_MAX_WAIT")
    except ValueError:
        raise BadArgument(f"INTERLEAVE_MAX_WAIT: {excerpt(text)} is not a number of seconds") from None


def require_registration(member: Member) -> None:
    """Raise `NotRegistered` if *member* cannot call."""
    if member.address and member.token:
        return
    if member.unregistered:
        raise NotRegistered(f"this process cannot join group {member.group}: {member.unregistered}")
    raise NotRegistered(
        f"job {member.job_id} of group {member.group} is not registered on node {member.node}: the node's "
        "interleave-agent did not answer when the job started; ask the administrator to check it "
        "(systemctl status interleave-agent), then requeue the job"
    )
