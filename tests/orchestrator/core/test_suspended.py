"""Jobs that Slurm has suspended: they can neither yield nor use a turn."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.policy import POLICIES
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.bench import Bench, granted, places
from tests.orchestrator.core.turns import Turns


def joined(rules: Rules, *names: str) -> Turns:
    bench = Turns(rules)
    for name in names:
        bench.join(name)
    bench.acquire(names[0])
    return bench


def suspend(bench: Turns, job: str, suspended: bool = True) -> None:
    bench.handle(ev.Suspended(bench.now, job, suspended))
    bench.settle()


def test_those_who_wait_are_told_when_the_holder_is_suspended_and_when_it_goes_on() -> None:
    bench = Bench()
    for job in "ABC":
        bench.start(job)
    bench.acquire("A")
    bench.acquire("B")
    bench.acquire("C")

    reason = "holder A is suspended in Slurm"
    assert places(bench.tell(ev.Suspended(bench.at, "A", True))) == [({2}, 1, reason), ({3}, 2, reason)]
    assert places(bench.tell(ev.Suspended(bench.at, "A", False))) == [({2}, 1, ""), ({3}, 2, "")]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_suspended_waiter_is_passed_over_until_it_goes_on(policy: str) -> None:
    bench = joined(Rules(policy=policy, linger_s=0), "A", "B", "C")
    bench.acquire("B")
    bench.acquire("C")
    suspend(bench, "B")

    bench.yield_("A")
    bench.settle()
    assert bench.holders() == {("C", "g")}

    suspend(bench, "B", suspended=False)
    bench.yield_("C")
    bench.settle()
    assert bench.holders() == {("B", "g")}


def test_a_waiter_that_goes_on_is_granted_at_once_what_is_free() -> None:
    bench = joined(Rules(), "A", "B")
    suspend(bench, "B")
    bench.acquire("B")
    bench.yield_("A")
    bench.settle()
    assert bench.holders() == set()

    suspend(bench, "B", suspended=False)

    assert bench.holders() == {("B", "g")}


def test_one_who_waits_although_it_is_suspended_is_told_so() -> None:
    bench = Bench()
    bench.start("A")
    bench.tell(ev.Suspended(bench.at, "A", True))

    assert places(bench.acquire("A")) == [({1}, 0, "the job is suspended in Slurm")]
    assert granted(bench.tell(ev.Suspended(bench.at, "A", False))) == ["A"]


def test_without_a_limit_a_suspended_holder_keeps_its_devices() -> None:
    bench = joined(Rules(force=True), "A", "B")
    bench.acquire("B")
    suspend(bench, "A")
    bench.wake(bench.now + 10_000)

    assert bench.holders() == {("A", "g")}


LIMITED = Rules(max_hold_s=60, yield_grace_s=1000, force=True)


def test_a_suspended_holder_is_saved_at_its_limit_without_the_grace_and_goes_on_later() -> None:
    bench = joined(LIMITED, "A", "B")
    bench.acquire("B")
    suspend(bench, "A")
    assert bench.holders() == {("A", "g")}
    bench.wake(bench.now + 60)
    bench.settle()
    assert bench.holders() == {("B", "g")}
    assert bench.core.state.parts[Key("A", "g")]["n1"].context is Context.SAVED

    bench.yield_("B")
    bench.settle()
    assert bench.holders() == set(), "it is queued, but could do nothing with a turn"
    suspend(bench, "A", suspended=False)
    assert bench.holders() == {("A", "g")}


def test_a_holder_that_is_suspended_over_its_limit_is_saved_at_once() -> None:
    bench = joined(LIMITED, "A", "B")
    bench.wake(bench.now + 100)
    bench.acquire("B")
    assert bench.holders() == {("A", "g")}, "it was asked"

    suspend(bench, "A")

    assert bench.holders() == {("B", "g")}


def test_where_the_site_does_not_force_it_keeps_its_devices() -> None:
    bench = joined(Rules(max_hold_s=60, yield_grace_s=10), "A", "B")
    bench.acquire("B")
    suspend(bench, "A")
    bench.wake(bench.now + 1000)

    assert bench.holders() == {("A", "g")}


def test_that_a_job_was_suspended_ends_with_it() -> None:
    bench = Bench()
    bench.start("A")
    for job in ("A", "stranger"):
        bench.tell(ev.Suspended(bench.at, job, True))
    bench.part_over("A")

    assert bench.core.state.pauses.suspended == set()
