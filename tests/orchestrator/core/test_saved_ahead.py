"""What is saved before anybody asks, and what stays on the devices beside others."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.turns import Turns, jobs


def context_of(bench: Turns, job: str) -> Context:
    return bench.core.state.parts[Key(job, "g")]["n1"].context


def test_with_eager_off_the_context_of_the_last_holder_stays() -> None:
    bench = jobs(Rules(), "A", "B")

    bench.yield_("A")
    bench.settle()

    assert context_of(bench, "A") is Context.RESIDENT


def test_with_eager_always_it_is_saved_at_once() -> None:
    bench = jobs(Rules(eager="always"), "A", "B")

    bench.yield_("A")
    bench.settle()

    assert context_of(bench, "A") is Context.SAVED


def test_with_eager_always_the_context_of_a_job_without_partners_stays() -> None:
    bench = jobs(Rules(eager="always"), "A")
    bench.join("elsewhere", devices=(1,))

    bench.yield_("A")
    bench.settle()

    assert context_of(bench, "A") is Context.RESIDENT


def test_a_job_that_comes_back_while_it_is_saved_gets_its_context_again() -> None:
    bench = jobs(Rules(eager="always"), "A", "B")
    bench.yield_("A")

    bench.acquire("A")
    bench.settle()

    assert bench.holders() == {("A", "g")}
    assert context_of(bench, "A") is Context.RESIDENT


def after(bench: Turns, seconds: float, goes: str = "", comes: str = "") -> None:
    """Let one job yield and one acquire, *seconds* from now."""
    bench.now += seconds
    if goes:
        bench.yield_(goes)
    if comes:
        bench.acquire(comes)
    bench.settle()


def test_learned_lengths_tell_who_will_ask_next() -> None:
    bench = jobs(Rules(eager="learned"), "A", "B")
    for _ in range(4):  # A stays away for 50 s, B for 5 s
        after(bench, 10, "A", comes="B")
        after(bench, 10, "B")
        after(bench, 5, comes="B")
        after(bench, 10, "B")
        after(bench, 25, comes="A")
    after(bench, 1, "A")

    assert context_of(bench, "A") is Context.SAVED


def alternate(bench: Turns, *names: str) -> None:
    """Let each of *names* come 2 s after the last one went, and stay for 1 s."""
    for name in names:
        bench.now += 2
        bench.acquire(name)
        bench.settle()
        bench.now += 1
        bench.yield_(name)
        bench.settle()


def jobs_without_turns(rules: Rules, *names: str) -> Turns:
    bench = Turns(rules)
    for name in names:
        bench.join(name)
    return bench


@pytest.mark.parametrize("rules", [Rules(eager="learned"), Rules(policy="learned")])
def test_jobs_that_take_turns_are_saved_ahead_once_that_is_known(rules: Rules) -> None:
    bench = jobs_without_turns(rules, "A", "B")

    alternate(bench, *"ABABA")

    assert context_of(bench, "A") is Context.SAVED


def test_one_long_break_does_not_change_what_is_usual() -> None:
    bench = jobs_without_turns(Rules(eager="learned"), "A", "B")
    alternate(bench, *"ABABABAB")
    bench.now += 10_000
    alternate(bench, *"ABA")

    assert context_of(bench, "A") is Context.SAVED


def test_who_does_not_come_back_any_more_is_not_expected() -> None:
    bench = jobs_without_turns(Rules(eager="learned"), "A", "B")
    alternate(bench, *"ABABAB")

    alternate(bench, *"AAAAAA")

    assert context_of(bench, "A") is Context.RESIDENT


def test_two_contexts_that_fit_together_both_stay_where_the_site_allows_it() -> None:
    bench = jobs(Rules(co_resident=True), "A", "B")
    for holder, waiter in (("A", "B"), ("B", "A"), ("A", "B")):
        bench.acquire(waiter)
        bench.yield_(holder)
        bench.settle(size=40)

    bench.acquire("A")
    bench.yield_("B")

    assert bench.holders() == {("A", "g")}
    assert (context_of(bench, "A"), context_of(bench, "B")) == (Context.RESIDENT, Context.RESIDENT)


def test_two_contexts_that_do_not_fit_together_are_switched() -> None:
    bench = jobs(Rules(co_resident=True), "A", "B")
    for holder, waiter in (("A", "B"), ("B", "A"), ("A", "B")):
        bench.acquire(waiter)
        bench.yield_(holder)
        bench.settle(size=60)

    assert (context_of(bench, "A"), context_of(bench, "B")) == (Context.SAVED, Context.RESIDENT)
