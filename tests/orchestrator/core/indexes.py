"""What the core keeps as things change, beside the same thing counted anew from all members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.book import Device
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.policy import Standing
from slurm_interleave.orchestrator.core.status import GroupState
from slurm_interleave.orchestrator.core.waits import Waits
from slurm_interleave.sql.rows import Key

Rank = tuple[float, float, int]
Claims = Mapping[Key, frozenset[Device]]  # what each waiter waits for
Ranks = Mapping[Key, Rank]


def expect_true_indexes(core: Core, now: float) -> None:
    """How groups stand, who waits at devices and which place a waiter has is what the rows say."""
    for group in core.state.groups:
        expect_true_view(core, group)
    for key in core.state.members:
        parts = core.state.parts.get(key, {}).values()
        assert list(core.state.devices(key)) == [Device(part.node, i) for part in parts for i in part.devices]
    for job in core.state.jobs:
        asked = {key for key, lease in core.state.leases.items() if job in (key.job_id, lease.driver)}
        assert core.state.leases_of(job) == asked
    devices = {device for key in core.state.members for device in core.state.devices(key)}
    claims = {key: frozenset(core.state.claimed_devices(key)) for key in core.state.waiters}
    ranks = {key: rank(core, key, now) for key in claims}
    assert all(call in core.state.attached for call in core.state.attached.listeners)
    for device in devices:
        expect_true_depth(core, [device], claims)
        expect_true_order(core, device, [key for key in claims if device in claims[key]], ranks, now)
    for key in claims:
        expect_true_depth(core, core.state.claimed_devices(key), claims)
        expect_true_place(core, key, claims, ranks, now)


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


def expect_true_depth(core: Core, devices: Sequence[Device], claims: Claims) -> None:
    waiting = [key for key, claimed in claims.items() if not claimed.isdisjoint(devices)]

    assert core.state.book.depth(devices) == len(waiting)
    assert set(core.state.book.jobs(devices)) == {key.job_id for key in waiting}


def rank(core: Core, key: Key, now: float) -> Rank:
    """Where a waiter stands: the smallest comes first."""
    state, policy, waiter = core.state, core.order.policy, core.state.waiters[key]
    if policy.in_order:
        return 0, 0, waiter.seq
    if key in core.switches.costs:
        return -1, 0, waiter.seq
    if Waits(state).behind(state.keeping[key]) or waiter.requested <= now - policy.ageing_s:
        return 0, 0, waiter.seq
    resident = all(is_resident(core, member) for member in waiter.keys)
    standing = Standing(state.members[key].account, state.priorities.get(key.job_id, 0), resident)
    return 1, policy.weight(policy.lot(standing)), waiter.seq


def expect_true_order(core: Core, device: Device, waiting: list[Key], ranks: Ranks, now: float) -> None:
    waiting.sort(key=lambda key: ranks[key])

    assert list(dict.fromkeys(key for key, _ in core.order.walk([device], now))) == waiting
    assert list(core.order.heads([device], 3, now))[:1] == waiting[:1]
    acting = [key for key in waiting if can_act(core, key)]
    assert core.order.first(device, now) == next(iter(acting), None)


def can_act(core: Core, key: Key) -> bool:
    state = core.state
    calls = state.attached.of(key)
    cut_off = calls and not state.waiters[key].told and all(state.attached.away.get(call) for call in calls)
    return state.pauses.jobs.isdisjoint(state.waiters[key].jobs) and not cut_off


def expect_true_place(core: Core, key: Key, claims: Claims, ranks: Ranks, now: float) -> None:
    state, mine = core.state, claims[key]
    before = {
        other.job_id
        for other in claims
        if ranks[other] < ranks[key]
        and state.pauses.jobs.isdisjoint(state.waiters[other].jobs)
        and not mine.isdisjoint(claims[other])
    }
    holders = {lease.job_id for lease in state.leases if not mine.isdisjoint(state.devices(lease))}

    assert core.turns.place(key, now)[0] == len((before | holders) - {key.job_id})
    assert core.turns.places([key], now) == {key: core.turns.place(key, now)}
