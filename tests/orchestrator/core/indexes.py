"""What the core keeps as things change, beside the same thing counted anew from all members."""

from __future__ import annotations

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.status import GroupState
from slurm_interleave.sql.rows import Key


def expect_true_indexes(core: Core, now: float) -> None:
    """How groups stand, who waits at devices and which place a waiter has is what the rows say."""
    for group in core.state.groups:
        expect_true_view(core, group)
    for key in core.state.members:
        parts = core.state.parts.get(key, {}).values()
        assert list(core.state.devices(key)) == [Device(part.node, i) for part in parts for i in part.devices]
    devices = {device for key in core.state.members for device in core.state.devices(key)}
    for device in devices:
        expect_true_depth(core, [device])
    for key in core.state.waiters:
        expect_true_depth(core, core.state.claimed_devices(key))
        expect_true_place(core, key, now)


def expect_true_view(core: Core, group: str) -> None:
    state, view = core.state, core.standings.view(group)
    members = list(state.groups[group])
    holders = {key.job_id for key in members if key in state.leases}
    switching = {key.job_id for key in members if state.claims.get(key) in core.switches.active}
    coming = switching - holders
    resident = {key.job_id for key in members if is_resident(core, key)}
    waiting = sum(key in state.claims for key in members)

    assert view.waiting == waiting - bool(switching)
    assert view.locking in (holders or coming or {""})
    assert view.active in ({view.locking} if view.locking else resident or {""})
    assert view.loaded in (resident or {""})
    assert view.state is expected_state(core, members, view.locking in holders, view.locking, view.loaded)
    assert core.standings.since(group)[0] is view.state


def expected_state(core: Core, members: list[Key], held: bool, locking: str, loaded: str) -> GroupState:
    if locking:
        return GroupState.LOCKED if held and loaded == locking else GroupState.SWITCHING
    parts = [part for key in members for part in core.state.parts[key].values()]
    if any(part.context is Context.UNKNOWN or part.node not in core.state.nodes_up for part in parts):
        return GroupState.UNKNOWN
    return GroupState.WARM if loaded else GroupState.IDLE


def is_resident(core: Core, key: Key) -> bool:
    parts = core.state.parts[key].values()
    return bool(parts) and all(part.context is Context.RESIDENT for part in parts)


def expect_true_depth(core: Core, devices: list[Device]) -> None:
    state = core.state
    waiting = [key for key in state.waiters if not set(devices).isdisjoint(state.claimed_devices(key))]

    assert state.book.depth(devices) == len(waiting)
    assert set(state.book.jobs(devices)) == {key.job_id for key in waiting}


def expect_true_place(core: Core, key: Key, now: float) -> None:
    state, order, mine = core.state, core.order, set(core.state.claimed_devices(key))
    fifo = order.policy.in_order
    ranks = {other: (w.seq,) if fifo else order.rank_now(other, now) for other, w in state.waiters.items()}
    acting = [other for other in state.waiters if other.job_id not in state.stopped]
    before = {
        other.job_id
        for other in acting
        if ranks[other] < ranks[key] and not mine.isdisjoint(state.claimed_devices(other))
    }
    holders = {lease.job_id for lease in state.leases if not mine.isdisjoint(state.devices(lease))}

    assert core.turns.place(key, now)[0] == len((before | holders) - {key.job_id})
