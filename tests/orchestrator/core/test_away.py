"""A caller who was cut off keeps his place, and others do not wait for him; a grant that he missed is his."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.calls import RETURN_GRACE_S
from slurm_interleave.orchestrator.core.commands import Command, Grant
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.policy import POLICIES
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.bench import Bench, of, settle


@pytest.fixture
def bench() -> Bench:
    """Job a holds; b, whose call is the second, waits, and c behind it."""
    bench = Bench()
    for job in "abc":
        bench.start(job)
    for job in "abc":
        bench.acquire(job)
    return bench


def away(bench: Bench, call: int, *, cut: bool = True) -> list[Command]:
    return bench.tell(ev.Away(bench.at, ev.CallId(call), cut))


def holder(bench: Bench) -> str:
    [key] = bench.core.state.leases
    return key.job_id


def test_who_is_cut_off_is_passed_over_and_keeps_his_place(bench: Bench) -> None:
    away(bench, 2)
    settle(bench, bench.yield_("a"))
    assert holder(bench) == "c"
    bench.acquire("a")
    bench.acquire("b")

    settle(bench, bench.yield_("c"))

    assert holder(bench) == "b", "it came before a"


def test_devices_that_are_free_are_given_to_who_is_there_when_the_first_is_cut_off(bench: Bench) -> None:
    bench.node_down("n1")
    bench.yield_("a")
    bench.acquire("a")
    assert not bench.core.state.leases, "b is first, and its switch needs the agent"

    granted = [*away(bench, 2), *away(bench, 3)]

    assert [grant.lease.job_id for grant in of(Grant, granted)] == ["a"], "its context is there"


def test_who_does_not_come_back_in_time_loses_his_place(bench: Bench) -> None:
    commands = away(bench, 2)

    bench.wake(commands)

    assert Key("b", "g") not in bench.core.state.waiters
    assert bench.at == 100 + RETURN_GRACE_S


def test_who_came_back_keeps_his_place_when_the_time_is_over(bench: Bench) -> None:
    commands = away(bench, 2)
    bench.acquire("b")

    bench.wake(commands)

    assert Key("b", "g") in bench.core.state.waiters


def test_a_grant_that_was_missed_is_that_of_the_next_call(bench: Bench) -> None:
    settle(bench, bench.yield_("a"))
    commands = away(bench, 2)

    [grant] = of(Grant, bench.acquire("b"))
    bench.wake(commands)

    assert grant.lease.epoch == 2
    assert holder(bench) == "b"


def test_a_grant_that_was_missed_twice_is_given_back(bench: Bench) -> None:
    settle(bench, bench.yield_("a"))
    first = away(bench, 2)
    bench.acquire("b")
    second = away(bench, 4)

    settle(bench, bench.wake([*first, *second]))

    assert holder(bench) == "c"
    assert bench.memory.slices[2].state is SliceState.YIELDED


def test_a_grant_that_nobody_comes_for_is_given_back(bench: Bench) -> None:
    settle(bench, bench.yield_("a"))

    settle(bench, bench.wake(away(bench, 2)))

    assert holder(bench) == "c"


def test_a_caller_who_calls_again_soon_can_be_granted_meanwhile(bench: Bench) -> None:
    away(bench, 2, cut=False)

    settle(bench, bench.yield_("a"))

    assert holder(bench) == "b"


def test_the_end_of_a_second_call_never_ends_the_lease_of_a_first(bench: Bench) -> None:
    bench.acquire("a")
    commands = away(bench, 4)

    bench.wake(commands)

    assert holder(bench) == "a"


def test_whose_last_caller_is_cut_off_is_passed_over_too(bench: Bench) -> None:
    bench.acquire("b")
    away(bench, 2)
    settle(bench, bench.yield_("a"))
    assert holder(bench) == "b", "one of its callers is there"


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_grants_to_who_is_cut_off(policy: str) -> None:
    bench = Bench()
    bench.core = Core(bench.memory.remembered(), 2, Rules(policy=policy))
    bench.node_up("n1")
    for job in "abc":
        bench.start(job)
        bench.acquire(job)
    away(bench, 2)

    settle(bench, bench.yield_("a"))

    assert holder(bench) == "c"
