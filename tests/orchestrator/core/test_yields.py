"""How a lease ends by its holder's word, or by somebody else's."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import NotTheHolder, StaleLease
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.core.commands import Yielded
from tests.orchestrator.core.bench import Bench, of, settle


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
