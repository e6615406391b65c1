"""What waits for the last holder to come back, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_interleave.orchestrator.core.policy import Learned
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.turns import Turns, jobs


def burst_of(bench: Turns, rounds: int) -> None:
    """Let A take turns with 1 s between them, alone, so that its habit is known."""
    for _ in range(rounds):
        bench.now += 1
        bench.yield_("A")
        bench.now += 1
        bench.acquire("A")


def test_least_switching_waits_a_moment_for_the_last_holder() -> None:
    bench = jobs(Rules(policy="least-switching"), "A", "B")
    burst_of(bench, 3)
    bench.acquire("B")
    bench.yield_("A")
    assert not bench.operations

    bench.now += 0.9
    bench.acquire("A")

    assert bench.holders() == {("A", "g")}


def test_least_switching_goes_on_when_the_last_holder_does_not_come_back_in_time() -> None:
    bench = jobs(Rules(policy="least-switching"), "A", "B")
    burst_of(bench, 3)
    bench.acquire("B")
    bench.yield_("A")

    bench.wake(bench.now + 1)
    bench.settle()

    assert bench.holders() == {("B", "g")}


def test_least_switching_does_not_let_a_burst_go_on_past_the_ageing_time() -> None:
    bench = jobs(Rules(policy="least-switching", ageing_s=5), "A", "B")
    burst_of(bench, 3)
    bench.acquire("B")

    burst_of(bench, 5)
    bench.settle()

    assert ("B", "g") in bench.holders() or bench.core.state.waiters[Key("A", "g")]


def costly(*names: str, policy: str = "learned") -> Turns:
    """Jobs whose contexts take 4 s each way, as the core has seen; the last one holds."""
    bench = Turns(Rules(policy=policy))
    bench.move_s = 4.0
    for name in names:
        bench.join(name)
    for name in (*names, *names):
        bench.now += 100
        bench.acquire(name)
        bench.settle()
        bench.now += 1
        bench.yield_(name)
        bench.settle()
    bench.acquire(names[-1])
    bench.settle()
    return bench


def come_back_after(bench: Turns, away_s: float, *, asks: bool = True) -> None:
    """Let the holder B show that it stays away for *away_s*, and let A ask, if it *asks*."""
    for _ in range(6):
        bench.now += 10
        bench.yield_("B")
        bench.now += away_s
        bench.acquire("B")
        bench.settle()
    if asks:
        bench.acquire("A")


@pytest.mark.parametrize(("away_s", "waited_for"), [(1.0, True), (7.0, True), (9.0, False)])
def test_learned_waits_for_a_job_that_is_away_for_less_than_the_switch_takes(
    away_s: float, waited_for: bool
) -> None:
    bench = costly("A", "B")
    come_back_after(bench, away_s)
    bench.now += 10

    bench.yield_("B")

    assert (not bench.operations) == waited_for


def test_learned_gives_the_job_that_it_waited_for_its_turn() -> None:
    bench = costly("A", "B")
    come_back_after(bench, 1.0)
    bench.now += 10
    bench.yield_("B")
    bench.now += 1.1

    bench.acquire("B")

    assert bench.holders() == {("B", "g")}


def test_learned_lets_nobody_be_passed_for_longer_than_the_switch_is_worth() -> None:
    bench = costly("A", "B")
    come_back_after(bench, 1.0)
    bench.now += Learned.AHEAD * 8 + 1

    bench.yield_("B")

    assert [order.job_id for order in bench.operations] == ["B", "A"]


def pauses(bench: Turns, every_s: float, count: int) -> list[str]:
    """Let B come to safe points, where it gives way; return who holds after each."""
    held = []
    for _ in range(count):
        bench.now += every_s
        bench.yield_("B", pause=True)
        bench.acquire("B")
        bench.settle()
        held += [job for job, _ in bench.holders()]
    return held


def test_learned_switches_at_a_safe_point_once_the_wait_was_worth_it() -> None:
    bench = costly("A", "B")
    bench.acquire("A")

    assert pauses(bench, 10, 9) == ["B"] * 9  # no switch costs more than a twelfth of what came before
    assert pauses(bench, 10, 1) == ["A"]


def test_first_come_first_served_switches_at_the_first_safe_point() -> None:
    bench = Turns(Rules(policy="fifo"))
    for name in "AB":
        bench.join(name)
    bench.acquire("B")
    bench.settle()
    bench.acquire("A")

    assert pauses(bench, 10, 1) == ["A"]


def test_a_phase_with_safe_points_is_learned_as_one_and_says_nothing_of_breaks() -> None:
    bench = costly("A", "B")
    key, habits = Key("B", "g"), bench.core.habits
    before = habits.hold(key, "")
    for _ in range(5):
        pauses(bench, 10, 3)
        assert habits.held_before_s(key) == 30
        bench.now += 10
        bench.yield_("B")
        bench.now += 7
        bench.acquire("B")
        bench.settle()

    usual = habits.hold(key, "")
    assert before is not None
    assert usual is not None
    assert (before.usual_s, usual.usual_s) == (1, 40)
    bench.yield_("B")
    assert habits.next_acquire(key, bench.now) == bench.now + 7


@pytest.mark.parametrize("policy", ["learned", "least-switching"])
def test_a_waiter_of_many_devices_is_woken_once_while_it_waits_for_the_last_holder(policy: str) -> None:
    bench = Turns(Rules(policy=policy))
    bench.move_s = 4.0
    for name in "AB":
        bench.join(name, devices=(0, 1, 2, 3))
    for name in "ABAB":
        bench.acquire(name)
        bench.settle()
        bench.now += 50
        bench.yield_(name)
        bench.now += 50
    bench.acquire("B")
    bench.settle()
    come_back_after(bench, 1.0)
    bench.now += 10
    bench.wakes.clear()

    bench.yield_("B")
    for wake in list(bench.wakes):
        bench.handle(replace(wake, at=bench.now))  # early: it waits on

    assert len(bench.wakes) == 1


def test_learned_goes_on_when_the_job_that_it_waits_for_does_not_come() -> None:
    bench = costly("A", "B")
    come_back_after(bench, 1.0)
    bench.yield_("B")

    bench.wake(bench.now + 9)
    bench.settle()

    assert bench.holders() == {("A", "g")}


@pytest.mark.parametrize("away_s", [0.0, 1.0])
@pytest.mark.parametrize("policy", ["learned", "least-switching"])
def test_nobody_waits_for_a_last_holder_that_has_stayed_away_for_longer_than_it_does(
    policy: str, away_s: float
) -> None:
    bench = costly("A", "B", policy=policy)
    come_back_after(bench, away_s, asks=False)
    bench.yield_("B")
    bench.now += 2 * away_s + 0.1

    bench.acquire("A")

    assert [order.job_id for order in bench.operations] == ["B", "A"]


@pytest.mark.parametrize("policy", ["learned", "least-switching"])
def test_who_waits_for_a_last_holder_that_comes_back_at_once_waits_no_longer_than_the_grace(
    policy: str,
) -> None:
    bench = costly("A", "B", policy=policy)
    come_back_after(bench, 0.0)
    yielded = bench.now
    bench.yield_("B")

    while not bench.operations:
        bench.wake(min(wake.at for wake in bench.wakes))

    assert bench.now <= yielded + Learned.grace * 8


def test_a_waiter_that_ages_meanwhile_waits_for_the_last_holder_no_longer() -> None:
    bench = jobs(Rules(policy="least-switching", ageing_s=20, linger_s=60), "A", "B")
    for _ in range(4):
        bench.now += 10
        bench.yield_("A")
        bench.now += 10
        bench.acquire("A")
    bench.acquire("B")
    asked = bench.now
    bench.now += 15
    bench.yield_("A")  # it is back in 10 s
    assert not bench.operations

    bench.wake(asked + 20)

    assert [order.job_id for order in bench.operations] == ["A"]


@pytest.mark.parametrize(("away_s", "waited_for"), [(2.0, True), (50.0, False)])
def test_of_several_last_holders_all_must_be_back_soon_to_be_waited_for(
    away_s: float, waited_for: bool
) -> None:
    bench = Turns(Rules(policy="least-switching", linger_s=5))
    bench.join("soon", devices=(0,))
    bench.join("late", devices=(1,))
    bench.join("wide", devices=(0, 1))
    for name, break_s in (("soon", 2.0), ("late", away_s)):
        for _ in range(5):
            bench.acquire(name)
            bench.now += 1
            bench.yield_(name)
            bench.now += break_s
        bench.acquire(name)
    bench.acquire("wide")

    for name in ("soon", "late"):
        bench.yield_(name)

    assert (not bench.operations) == waited_for
