"""How a lease ends by its holder's word, or by somebody else's."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import NotTheHolder, StaleLease
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.core.commands import Yielded
from tests.orchestrator.core.bench import Bench, granted, lease, of, report, settle


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_yield_says_how_many_waited(bench: Bench) -> None:
    for job in "abc":
        bench.start(job)
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("c")

    assert of(Yielded, bench.yield_("a")) == [Yielded(2)]


def test_a_yield_ends_the_lease_in_one_slice(bench: Bench) -> None:
    bench.start("a", n1=(0, 1))
    bench.acquire("a", phase="train")
    bench.at += 7

    bench.yield_("a", 1)

    [ended] = bench.memory.slices.values()
    assert (ended.state, ended.phase, ended.epoch) == (SliceState.YIELDED, "train", 1)
    assert (ended.granted, ended.ended) == (100, 107)
    assert ended.devices == ("n1/0", "n1/1")


def test_a_yield_that_comes_twice_is_answered_twice(bench: Bench) -> None:
    bench.start("a")
    bench.start("b")
    bench.acquire("a")
    bench.acquire("b")
    settle(bench, bench.yield_("a", 1))

    assert of(Yielded, bench.yield_("a", 1)) == [Yielded(0)]
    assert of(Yielded, bench.yield_("a")) == [Yielded(0)]
    assert bench.holds("b")


def test_a_late_yield_of_an_earlier_lease_changes_nothing(bench: Bench) -> None:
    bench.start("a")
    bench.acquire("a")
    bench.yield_("a", 1)
    bench.acquire("a")
    bench.yield_("a", 2)
    bench.acquire("a")

    with pytest.raises(StaleLease, match="lease 1 has ended and lease 3 is held now; acquire again"):
        bench.yield_("a", 1)

    assert bench.holds("a")


def test_a_yield_by_a_stranger_is_refused_and_changes_nothing(bench: Bench) -> None:
    bench.start("a")
    bench.start("b")
    bench.acquire("a")

    with pytest.raises(NotTheHolder):
        bench.yield_("b")

    assert bench.holds("a")


def test_a_yield_while_nobody_holds_is_fine(bench: Bench) -> None:
    bench.start("a")

    assert of(Yielded, bench.yield_("a")) == [Yielded(0)]


@pytest.fixture
def again(bench: Bench) -> Bench:
    """A process of job a was granted and died; the next one asks, and is told of the same lease."""
    for job in "ab":
        bench.start(job)
    bench.acquire("a", name="first")
    assert lease(bench.acquire("a", name="second")).epoch == 1
    return bench


@pytest.mark.parametrize("restarted", [False, True])
def test_a_late_yield_of_a_dead_process_does_not_end_what_the_next_one_holds(
    again: Bench, restarted: bool
) -> None:
    if restarted:
        again.restart()

    assert of(Yielded, again.yield_("a", 1, call="first")) == [Yielded(0)]

    assert again.holds("a")
    again.yield_("a", 1, call="second")
    assert not again.holds("a")
    assert of(Yielded, again.yield_("a", 1, call="first")) == [Yielded(0)], "it was answered before"
    assert again.slices() == [("a", SliceState.YIELDED)]


@pytest.mark.parametrize("call", ["second", ""])
def test_who_asked_last_and_who_names_no_call_end_the_lease(again: Bench, call: str) -> None:
    again.yield_("a", 1, call=call)

    assert not again.holds("a")


def test_a_call_without_a_name_takes_no_lease_from_one_that_has(again: Bench) -> None:
    again.acquire("a")

    again.yield_("a", 1, call="second")

    assert not again.holds("a")


def test_an_acquire_that_was_given_up_during_a_restart_ends_what_it_was_granted(bench: Bench) -> None:
    for job in "ab":
        bench.start(job)
    bench.acquire("a", name="first")
    bench.restart()
    for node in ("n1", "n2"):
        bench.node_up(node, *[report(job, nodes=("n1",)) for job in "ab" if node == "n1"])
    assert granted(bench.acquire("b")) == []

    commands = bench.abandon("a", "first")

    assert granted(settle(bench, commands)) == ["b"]
    assert bench.slices() == [("a", SliceState.YIELDED)]


@pytest.mark.parametrize("name", ["first", "second", "unheard-of"])
def test_an_acquire_that_was_given_up_ends_no_lease_that_another_was_told_of(again: Bench, name: str) -> None:
    again.restart()

    again.abandon("a", name)
    again.abandon("nobody", name)

    assert again.holds("a")
