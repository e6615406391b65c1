"""Who is granted when, and how a lease ends."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import (
    NotRegistered,
)
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core.commands import Advance, Grant, Operate, Put
from slurm_interleave.orchestrator.core.events import Registered
from slurm_interleave.sql.rows import Lease, Waiter
from tests.orchestrator.core.bench import Bench, granted, lease, of, orders, report, settle


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_free_devices_are_granted_at_once(bench: Bench) -> None:
    bench.start("a")

    commands = bench.acquire("a", phase="rollout")

    assert granted(commands) == ["a"]
    assert lease(commands).phase == "rollout"
    assert not lease(commands).switched
    assert bench.context("a") is Context.RESIDENT


def test_a_grant_is_recorded_with_its_epoch_before_it_is_answered(bench: Bench) -> None:
    bench.start("a")

    commands = bench.acquire("a")

    recorded = [c for c in commands if isinstance(c, Put) and isinstance(c.row, Lease)]
    [grant] = of(Grant, commands)
    assert commands.index(recorded[0]) < commands.index(grant)
    assert of(Advance, commands) == [Advance(0, 1)]


def test_waiters_come_in_the_order_in_which_they_asked(bench: Bench) -> None:
    for job in "abc":
        bench.start(job)
    bench.acquire("a")

    assert granted(bench.acquire("c")) == []
    assert granted(bench.acquire("b")) == []

    assert granted(settle(bench, bench.yield_("a"))) == ["c"]
    assert granted(settle(bench, bench.yield_("c"))) == ["b"]


def test_another_jobs_context_is_taken_off_before_the_grant(bench: Bench) -> None:
    bench.start("a")
    bench.start("b")
    bench.turn("a")

    commands = bench.acquire("b")

    assert orders(commands) == [("snapshot", "a", "n1")]
    assert granted(commands) == []
    [order] = of(Operate, commands)
    bench.at += 2
    commands = bench.done(order)
    assert granted(commands) == ["b"]
    assert lease(commands).switched
    assert not lease(commands).restored
    assert lease(commands).switch_s == 2
    assert lease(commands).snapshot_s == 0.5
    assert lease(commands).switch_bytes == 1 << 30


def test_a_saved_context_comes_back_before_the_grant(bench: Bench) -> None:
    bench.start("a")
    bench.start("b")
    bench.turn("a")
    bench.turn("b")

    commands = bench.acquire("a")

    assert orders(commands) == [("snapshot", "b", "n1"), ("restore", "a", "n1")]
    save, load = of(Operate, commands)
    assert load.after == (save.operation,)
    assert granted(bench.done(save)) == []
    commands = bench.done(load)
    assert granted(commands) == ["a"]
    assert lease(commands).restored


def test_the_last_holder_comes_back_without_a_switch(bench: Bench) -> None:
    bench.start("a")
    bench.start("b")
    bench.turn("a")

    commands = bench.acquire("a")

    assert granted(commands) == ["a"]
    assert orders(commands) == []
    assert not lease(commands).restored


def test_jobs_of_different_groups_conflict_where_their_devices_meet(bench: Bench) -> None:
    bench.start("a", "g")
    bench.start("b", "other")
    bench.acquire("a", "g")

    assert granted(bench.acquire("b", "other")) == []
    assert granted(settle(bench, bench.yield_("a", 0, "g"))) == ["b"]


def test_jobs_of_one_group_on_different_devices_do_not_wait_for_each_other(bench: Bench) -> None:
    bench.start("a", n1=(0,))
    bench.start("b", n1=(1,))
    bench.start("c", n2=(0,))

    assert granted([*bench.acquire("a"), *bench.acquire("b"), *bench.acquire("c")]) == ["a", "b", "c"]


def test_device_sets_that_meet_in_part_exclude_each_other(bench: Bench) -> None:
    bench.start("a", n1=(0, 1))
    bench.start("b", n1=(1, 2))
    bench.start("c", n1=(2, 3))
    bench.acquire("a")

    assert granted(bench.acquire("b")) == []
    assert granted(bench.acquire("c")) == [], "b asked before, and wants device 2 too"

    assert granted(settle(bench, bench.yield_("a"))) == ["b"]
    assert granted(settle(bench, bench.yield_("b"))) == ["c"]


def test_a_waiter_at_the_head_holds_up_only_those_it_conflicts_with(bench: Bench) -> None:
    bench.start("a", n1=(0,))
    bench.start("b", n1=(0,))
    bench.start("c", n1=(1,))
    bench.acquire("a")
    bench.acquire("b")

    assert granted(bench.acquire("c")) == ["c"]


def test_a_job_on_several_nodes_is_granted_when_it_may_have_them_all(bench: Bench) -> None:
    bench.start("a", n1=(0,))
    bench.start("b", n2=(0,))
    bench.start("c", n1=(0,), n2=(0,))
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("c")

    assert granted(settle(bench, bench.yield_("a"))) == []
    assert granted(settle(bench, bench.yield_("b"))) == ["c"]


def test_a_job_waits_until_all_its_nodes_have_registered_it(bench: Bench) -> None:
    bench.tell(Registered(bench.at, "n1", report("a", nodes=("n1", "n2"))))
    assert granted(bench.acquire("a")) == []

    registered = bench.tell(Registered(bench.at, "n2", report("a", nodes=("n1", "n2"))))

    assert granted(registered) == ["a"]


def test_the_holder_who_asks_again_keeps_its_lease(bench: Bench) -> None:
    bench.start("a")
    bench.start("b")
    first = lease(bench.acquire("a"))
    bench.acquire("b")

    assert lease(bench.acquire("a")) == first
    assert granted(settle(bench, bench.yield_("a"))) == ["b"]


def test_two_calls_of_one_waiter_have_one_place_and_one_grant(bench: Bench) -> None:
    for job in "abc":
        bench.start(job)
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("c")

    again = bench.acquire("b")

    assert not [c for c in again if isinstance(c, Put) and isinstance(c.row, Waiter)]
    [grant] = of(Grant, settle(bench, bench.yield_("a")))
    assert grant.lease.job_id == "b"
    assert grant.calls == {2, 4}


def test_a_waiter_whose_caller_goes_leaves_the_queue(bench: Bench) -> None:
    for job in "abc":
        bench.start(job)
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("c")

    bench.cancel(2)

    assert not bench.waits("b")
    assert granted(settle(bench, bench.yield_("a"))) == ["c"]


def test_a_waiter_with_another_caller_keeps_its_place(bench: Bench) -> None:
    bench.start("a")
    bench.start("b")
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("b")

    bench.cancel(2)

    [grant] = of(Grant, settle(bench, bench.yield_("a")))
    assert grant.calls == {3}


def test_a_grant_that_nobody_heard_is_given_back(bench: Bench) -> None:
    bench.start("a")
    bench.start("b")
    bench.acquire("a")
    bench.acquire("b")

    commands = settle(bench, bench.cancel(1))

    assert granted(commands) == ["b"]
    assert bench.slices() == [("a", SliceState.YIELDED)]


def test_a_holder_who_asks_again_and_goes_keeps_its_lease(bench: Bench) -> None:
    bench.start("a")
    bench.acquire("a")
    bench.restart()
    bench.node_up("n1", report("a", context=Context.RESIDENT))

    bench.acquire("a")
    bench.cancel(2)

    assert bench.holds("a")


def test_a_job_is_refused_in_a_group_that_nobody_registered(bench: Bench) -> None:
    with pytest.raises(NotRegistered, match="--interleave-group=nonesuch"):
        bench.acquire("a", "nonesuch")
    with pytest.raises(NotRegistered):
        bench.yield_("a", 0, "nonesuch")


def test_a_job_that_nobody_registered_is_refused(bench: Bench) -> None:
    bench.start("a")

    with pytest.raises(NotRegistered, match="check interleave-agent on the job's nodes"):
        bench.acquire("b")

    assert not bench.waits("b")
