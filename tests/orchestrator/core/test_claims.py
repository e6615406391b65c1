"""Several groups in one acquire, and waits that would never end."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import Busy, Deadlock
from slurm_interleave.orchestrator.core.events import NodeUp
from tests.orchestrator.core.turns import Turns


def two_jobs_with_two_groups() -> Turns:
    bench = Turns()
    for job in "AB":
        bench.join(job, "trainer", (0,))
        bench.join(job, "sampler", (1,))
    return bench


def test_an_acquire_of_two_groups_is_granted_both_or_none() -> None:
    bench = two_jobs_with_two_groups()
    bench.acquire("A", "sampler")

    bench.acquire("B", "trainer", "sampler")
    assert bench.holders() == {("A", "sampler")}

    bench.yield_("A", "sampler")
    bench.settle()
    assert bench.holders() == {("B", "trainer"), ("B", "sampler")}


def test_the_leases_of_one_acquire_end_one_by_one() -> None:
    bench = two_jobs_with_two_groups()
    bench.acquire("A", "trainer", "sampler")

    bench.yield_("A", "sampler")

    assert bench.holders() == {("A", "trainer")}


def test_what_is_held_already_is_not_waited_for_again() -> None:
    bench = two_jobs_with_two_groups()
    bench.acquire("A", "trainer")

    bench.acquire("A", "trainer", "sampler")

    assert bench.holders() == {("A", "trainer"), ("A", "sampler")}


def test_who_asks_for_what_is_held_too_is_told_of_all_and_ends_all() -> None:
    bench = two_jobs_with_two_groups()
    bench.call("A", "first", "trainer")
    bench.acquire("B", "sampler")
    bench.call("A", "second", "trainer", "sampler")
    assert bench.granted == [("A", "trainer"), ("B", "sampler")]

    bench.yield_("B", "sampler")
    bench.settle()

    assert sorted(bench.granted[2:]) == [("A", "sampler"), ("A", "trainer")]
    for group in ("trainer", "sampler"):
        bench.yield_("A", group, "second")
    assert bench.holders() == set()


def test_trainer_then_sampler_while_holding_trainer_works_as_existing_integrations_do_it() -> None:
    bench = two_jobs_with_two_groups()
    bench.acquire("A", "trainer")
    bench.acquire("B", "sampler")
    bench.acquire("A", "sampler")
    assert bench.holders() == {("A", "trainer"), ("B", "sampler")}

    bench.yield_("B", "sampler")
    bench.settle()

    assert bench.holders() == {("A", "trainer"), ("A", "sampler")}


def test_a_job_that_others_wait_for_passes_them_in_the_next_queue() -> None:
    bench = two_jobs_with_two_groups()
    bench.acquire("A", "trainer")
    bench.acquire("B", "trainer", "sampler")

    bench.acquire("A", "sampler")

    assert bench.holders() == {("A", "trainer"), ("A", "sampler")}
    bench.yield_("A", "sampler")
    bench.yield_("A", "trainer")
    bench.settle()
    assert bench.holders() == {("B", "trainer"), ("B", "sampler")}


def test_the_waiter_that_closes_a_cycle_is_told_and_changes_nothing() -> None:
    bench = two_jobs_with_two_groups()
    bench.acquire("A", "trainer")
    bench.acquire("B", "sampler")
    bench.acquire("A", "sampler")

    with pytest.raises(Deadlock, match="job B would wait for ever") as caught:
        bench.acquire("B", "trainer")

    assert "job A of group sampler" in str(caught.value)
    assert "held by job A of group trainer" in str(caught.value)
    bench.yield_("B", "sampler")
    bench.settle()
    assert bench.holders() == {("A", "trainer"), ("A", "sampler")}


def test_a_cycle_of_three_jobs_is_found() -> None:
    bench = Turns()
    for job in "ABC":
        for number in range(3):
            bench.join(job, f"g{number}", (number,))
    for number, job in enumerate("ABC"):
        bench.acquire(job, f"g{number}")
    bench.acquire("A", "g1")
    bench.acquire("B", "g2")

    with pytest.raises(Deadlock, match="job C would wait for ever"):
        bench.acquire("C", "g0")


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_cycle_through_any_node_of_a_job_on_two_is_found(node: str) -> None:
    bench = Turns()
    bench.handle(NodeUp(bench.now, "n2", (), ((0, 100), (1, 100))))
    both = ("n1", "n2")
    for name in both:
        bench.join("A", "wide", (0,), name, nodes=both)
    for job in "AB":
        bench.join(job, "sampler", (1,), "n2")
    bench.join("B", "narrow", (0,), node)
    bench.acquire("A", "wide")
    bench.acquire("B", "sampler")
    bench.acquire("A", "sampler")

    with pytest.raises(Deadlock, match="job B would wait for ever"):
        bench.acquire("B", "narrow")


def test_a_cycle_through_the_order_of_a_queue_is_found() -> None:
    bench = Turns()
    for job in "ABC":
        bench.join(job, "g0", (0,))
        bench.join(job, "g1", (1,))
    bench.acquire("A", "g0")
    bench.acquire("B", "g1")
    bench.acquire("C", "g0")
    # B waits behind C, which waits for A.
    bench.acquire("B", "g0")

    with pytest.raises(Deadlock):
        bench.acquire("A", "g1")


def test_an_independent_acquire_may_wait_where_a_dependent_one_would_deadlock() -> None:
    bench = two_jobs_with_two_groups()
    bench.acquire("A", "trainer", independent=True)
    bench.acquire("B", "sampler", independent=True)
    bench.acquire("A", "sampler", independent=True)

    bench.acquire("B", "trainer", independent=True)

    bench.yield_("A", "trainer")
    bench.settle()
    assert ("B", "trainer") in bench.holders()


def test_a_member_that_waits_with_others_cannot_wait_alone_too() -> None:
    bench = two_jobs_with_two_groups()
    bench.acquire("A", "trainer", "sampler")
    bench.acquire("B", "trainer", "sampler")

    with pytest.raises(Busy, match="trainer, sampler"):
        bench.acquire("B", "sampler")


def test_a_cancelled_acquire_of_two_groups_leaves_both_queues() -> None:
    from slurm_interleave.orchestrator.core.events import CallId, Cancel

    bench = two_jobs_with_two_groups()
    bench.acquire("A", "trainer", "sampler")
    call = bench.acquire("B", "trainer", "sampler")

    bench.handle(Cancel(bench.now, CallId(call)))

    assert not bench.core.state.waiters
    assert not bench.core.state.claims


def test_a_grant_of_two_groups_that_nobody_heard_is_given_back_as_a_whole() -> None:
    from slurm_interleave.orchestrator.core.events import CallId, Cancel

    bench = two_jobs_with_two_groups()
    call = bench.acquire("A", "trainer", "sampler")

    bench.handle(Cancel(bench.now, CallId(call)))

    assert bench.holders() == set()
