"""The simulation can fail: each rule that is broken on purpose is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.node_agent.drain import Drains
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.calls import Calls
from slurm_interleave.orchestrator.core.clears import Clears
from slurm_interleave.orchestrator.core.commands import Command, Grant, Put
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.nodes import Nodes
from slurm_interleave.orchestrator.core.order import Order
from slurm_interleave.orchestrator.core.pauses import Pauses
from slurm_interleave.orchestrator.core.remembered import Remembered
from slurm_interleave.orchestrator.core.slices import Ended
from slurm_interleave.orchestrator.core.state import State
from slurm_interleave.orchestrator.core.switches import Switches
from slurm_interleave.orchestrator.core.turns import Turns
from slurm_interleave.orchestrator.core.waits import Waits
from slurm_interleave.sql import rows
from tests.orchestrator.core import test_claims, test_drains
from tests.orchestrator.core.bench import Bench
from tests.simulation.observer import Violation
from tests.simulation.world import simulate

EVENTS, SEEDS = 3000, 24


@dataclass(frozen=True)
class Mutation:
    """A rule that is broken: *broken* takes the place of *name*, and is given the true one first."""

    place: type
    name: str
    broken: Callable[..., Any]


def no_switch(true: Any, turns: Turns, *args: Any) -> Any:
    return []


def any_epoch(true: Any, calls: Calls, event: ev.Yield) -> None:
    true(calls, replace(event, epoch=0, call=""))  # the name of the acquire tells too which lease is meant


def no_slice(true: Any, state: State, change: Any, *members: rows.Key) -> None:
    if not (isinstance(change, Put) and isinstance(change.row, rows.Slice) and change.row.epoch % 10 == 0):
        true(state, change, *members)


def two_slices(true: Any, state: State, key: rows.Key, how: SliceState, at: float) -> None:
    lease = state.leases[key]
    true(state, key, how, at)
    if lease.epoch % 10 == 0:
        state.ended.append(Ended(key, lease, at, paused=False))
        state.leases[key] = lease


def last_first(true: Any, state: State, remembered: Remembered) -> None:
    seqs = sorted(waiter.seq for waiter in remembered.waiters)
    turned = sorted(remembered.waiters, key=lambda waiter: -waiter.seq)
    waiters = tuple(replace(waiter, seq=seq) for waiter, seq in zip(turned, seqs, strict=True))
    true(state, replace(remembered, waiters=waiters))


def no_holders(true: Any, state: State, remembered: Remembered) -> None:
    true(state, replace(remembered, leases=()))


def never(true: Any, *args: Any) -> None:
    """Do nothing."""


def nobody(true: Any, drains: Drains) -> list[Any]:
    return []


def epoch_again(true: Any, core: Core, remembered: Remembered, *args: Any) -> None:
    true(core, replace(remembered, epoch=max(remembered.epoch - 1, 0)), *args)


def youngest(true: Any, order: Order, device: Any, now: float) -> Any:
    return next(reversed(list(order._state.book.queue(device))), None)


def all_went_well(true: Any, switches: Switches, event: ev.OperationDone) -> Any:
    return true(switches, replace(event, ok=True, context=switches_to(switches, event)))


def switches_to(switches: Switches, event: ev.OperationDone) -> Any:
    switch = switches._by_number.get(event.operation)
    if switch is None:
        return event.context
    return {"snapshot": "saved", "restore": "resident"}[switch.pending[event.operation].verb.value]


def in_part(true: Any, turns: Turns, key: rows.Key, at: float) -> None:
    """Grant the first of several groups, and forget the others."""
    state, waiter = turns._state, turns._state.waiters[key]
    if waiter.also:
        keeping, asker, calls = state.keeping[key], state.askers.get(key), state.drop_waiter(key)
        state.put_waiter(replace(waiter, also=()), keeping)
        state.attached.add(key, calls)
        if asker is not None:
            state.askers[key] = asker
    true(turns, key, at)


def answered_in_part(true: Any, arbiter: Arbiter, command: Command) -> None:
    true(arbiter, replace(command, also=()) if isinstance(command, Grant) else command)


def whenever(true: Any, nodes: Nodes, event: ev.JobOver) -> None:
    true(nodes, replace(event, ended=event.at))


def no_cycles(true: Any, *args: Any) -> dict[rows.Key, rows.Key]:
    return {}


def everywhere(true: Any, pauses: Pauses, job_id: str, _: str) -> None:
    pauses.forget(job_id)


def goes_on(bench: Bench) -> None:
    bench.tell(ev.Draining(bench.at, "A", "n2", False))


MUTATIONS = {
    "a grant without a switch": Mutation(Turns, "_foreign_contexts", no_switch),
    "a yield with an old epoch counts": Mutation(Calls, "yield_", any_epoch),
    "a lease without a slice": Mutation(State, "_emit", no_slice),
    "a lease that goes on after its slice": Mutation(State, "end_lease", two_slices),
    "the queue turned round by a restart": Mutation(State, "_load", last_first),
    "the holders forgotten by a restart": Mutation(State, "_load", no_holders),
    "the last epoch forgotten by a restart": Mutation(Core, "__init__", epoch_again),
    "an agent that is back is not told its orders": Mutation(Switches, "node_up", never),
    "the end of a job is not heard of": Mutation(Nodes, "part_over", never),
    "the late end of a run ends the next one": Mutation(Nodes, "job_over", whenever),
    "processes that a killed agent left standing still": Mutation(Drains, "unfinished", nobody),
    "last come, first served": Mutation(Order, "first", youngest),
    "a failed move counts as made": Mutation(Switches, "done", all_went_well),
    "a grant of some of the groups": Mutation(Turns, "_grant", in_part),
    "a caller told of some of the groups": Mutation(Arbiter, "_perform", answered_in_part),
    "a fault that is cleared and nothing discarded": Mutation(Clears, "_discard", never),
}


# What histories of this length hardly ever meet: a test of its own catches it at once.
DIRECT = {
    "no look for cycles": (
        Mutation(Waits, "check", no_cycles),
        test_claims.test_the_waiter_that_closes_a_cycle_is_told_and_changes_nothing,
    ),
    "a turn during a drain": (
        Mutation(Pauses, "being_saved", never),
        test_drains.test_a_job_that_is_being_drained_gets_no_turn_until_it_goes_on,
    ),
    "a drain that one of two nodes ends": (
        Mutation(Pauses, "go_on", everywhere),
        partial(
            test_drains.test_what_one_node_says_of_a_job_does_not_end_what_another_does,
            goes_on,
            "g",
        ),
    ),
}


def broken(mutation: Mutation) -> Any:
    true = getattr(mutation.place, mutation.name)
    return patch.object(mutation.place, mutation.name, lambda *args: mutation.broken(true, *args))


def simulate_all() -> None:
    for seed in range(SEEDS):
        simulate(seed, EVENTS)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_caught(name: str) -> None:
    with broken(MUTATIONS[name]), pytest.raises(Violation) as caught:
        simulate_all()

    assert str(caught.value).startswith("seed ")
    assert "\nagain: pytest tests/simulation --seed " in str(caught.value)


@pytest.mark.parametrize("name", DIRECT)
def test_a_broken_rule_that_few_histories_meet_is_caught_by_a_test_of_its_own(name: str) -> None:
    mutation, holds = DIRECT[name]

    holds()
    with broken(mutation), pytest.raises((AssertionError, pytest.fail.Exception)):
        holds()
