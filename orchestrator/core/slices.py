"""Leases as the slices that the report shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from slurm_interleave.client.core.states import YIELDS, SliceState
from slurm_interleave.orchestrator.core.company import Shared
from slurm_interleave.sql.rows import Key, Lease, Member, Slice

if TYPE_CHECKING:
    from slurm_interleave.orchestrator.core.state import State


class Ended(NamedTuple):
    """A lease that ended, and whether its phase goes on."""

    key: Key
    lease: Lease
    at: float
    paused: bool


def slice_of(
    member: Member,
    nodes: tuple[str, ...],
    devices: tuple[str, ...],
    lease: Lease,
    state: SliceState,
    ended: float,
    shared: Shared,
    expected_s: float,
) -> Slice:
    """Return *lease* of *member*, who has *devices* on *nodes*; a faulted one's ended for that reason."""
    faulted = bool(member.fault and ended) and state not in YIELDS
    return Slice(
        job_id=member.job_id,
        group=member.group,
        role=member.role,
        uid=member.uid,
        user=member.user,
        account=member.account,
        partition=member.partition,
        name=member.name,
        backend=member.backend,
        epoch=lease.epoch,
        nodes=nodes,
        devices=devices,
        phase=lease.phase,
        state=SliceState.FAULTED if faulted else state,
        requested=lease.requested,
        granted=lease.granted,
        ended=ended,
        switched=lease.switched,
        switch_s=lease.switch_s,
        snapshot_s=lease.snapshot_s,
        restore_s=lease.restore_s,
        switch_bytes=lease.switch_bytes,
        off_s=shared.off_s,
        share=shared.share,
        partners=shared.partners,
        comment=member.fault if faulted else "",
        profile=member.profile,
        expected_s=expected_s,
    )


def live_slices(state: State) -> Iterator[Slice]:
    """Return what lasts or waits now, as slices."""
    for key, lease in state.leases.items():
        yield state.slice_of(key, lease, SliceState.RUNNING, 0.0)
    for key, claim in state.claims.items():
        waiter = state.waiters[claim]
        lease = Lease(key.job_id, key.group, 0, waiter.phase, waiter.requested, 0.0)
        yield state.slice_of(key, lease, SliceState.WAITING, 0.0)
