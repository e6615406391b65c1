"""Cancels of moves that no switch of this orchestrator waits for, and agents that know none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.commands import Command, Operate, Verb, WakeMe
from slurm_interleave.orchestrator.core.events import Draining, NodeUp
from slurm_interleave.orchestrator.core.switches import BACK_OFF_S
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.bench import Bench, cancels, granted, of, orders, report, settle


@pytest.fixture
def bench() -> Bench:
    """Jobs a and b share device 0 of n1; a has held it."""
    bench = Bench("n1")
    bench.start("a")
    bench.start("b")
    bench.turn("a")
    return bench


def ordered(bench: Bench, verb: Verb) -> Operate:
    """Let a's snapshot be ordered for b, or, once that is made, b's restore; return the order."""
    if verb is Verb.RESTORE:
        bench.turn("b")
        bench.turn("a")
    moves = of(Operate, bench.acquire("b"))
    if verb is Verb.RESTORE:
        bench.done(moves[0])
    return moves[-1]


def back(bench: Bench, **contexts: Context) -> list[Command]:
    """Let the agent say where the state of a and b is."""
    return bench.node_up("n1", *(report(job, context=contexts.get(job, Context.NONE)) for job in "ab"))


WHOSE = {Verb.SNAPSHOT: "a", Verb.RESTORE: "b"}
MOVING = {Verb.SNAPSHOT: Context.SAVING, Verb.RESTORE: Context.RESTORING}
verbs = pytest.mark.parametrize("verb", list(WHOSE), ids=lambda verb: verb.value)


@verbs
@pytest.mark.parametrize("known", [True, False], ids=["agent is back", "agent is not back yet"])
def test_what_an_earlier_orchestrator_ordered_is_cancelled_by_its_number_and_tried_again_later(
    bench: Bench, verb: Verb, known: bool
) -> None:
    order, key = ordered(bench, verb), Key(WHOSE[verb], "g")
    bench.restart()
    bench.acquire("b")
    if known:
        back(bench, **{WHOSE[verb]: MOVING[verb]})

    stops = cancels(bench.cancel_moves(WHOSE[verb]))
    if not known:
        stops = cancels(back(bench, **{WHOSE[verb]: MOVING[verb]}))
    before = bench.core.cancels.under_way(key, "n1")
    ended = bench.fails(order, "cancelled")

    assert stops == [("n1", WHOSE[verb], order.operation)]
    assert (before, bench.core.cancels.under_way(key, "n1")) == (True, False)
    assert (orders(ended), granted(ended), bench.fault("a"), bench.fault("b")) == ([], [], "", "")
    assert [one.wake.at for one in of(WakeMe, ended)] == [bench.at + BACK_OFF_S[-1]]
    assert granted(settle(bench, bench.wake(ended))) == ["b"]


def test_of_an_agent_that_started_again_too_nothing_is_left_to_be_cancelled(bench: Bench) -> None:
    ordered(bench, Verb.SNAPSHOT)
    bench.restart()
    bench.acquire("b")
    bench.cancel_moves("a")

    came = back(bench, a=Context.RESIDENT)
    again = back(bench, a=Context.RESIDENT)

    assert cancels(came) + cancels(again) == []
    assert bench.context("a") is Context.RESIDENT
    assert orders(came) == []
    assert granted(settle(bench, bench.wake(came))) == ["b"]


def test_a_job_that_is_over_leaves_no_cancel_behind(bench: Bench) -> None:
    ordered(bench, Verb.SNAPSHOT)
    bench.restart()
    bench.cancel_moves("a")

    bench.node_up("n1", report("b"))
    bench.start("a", attempt="2")

    assert cancels(bench.node_up("n1", report("b"), report("a", attempt="2", context=Context.SAVING))) == []


def test_a_drain_is_cancelled_and_its_agent_hears_of_it_until_it_is_over(bench: Bench) -> None:
    bench.tell(Draining(bench.at, "a", "n1", True))

    first = cancels(bench.cancel_moves("a"))
    saved = replace(report("a", context=Context.RESIDENT), being_saved=True)
    again = cancels(bench.node_up("n1", saved, report("b")))
    saving = bench.core.cancels.under_way(Key("a", "g"), "n1")
    bench.tell(Draining(bench.at, "a", "n1", False))

    assert first == again == [("n1", "a", "")]
    assert (saving, bench.core.cancels.under_way(Key("a", "g"), "n1")) == (True, False)
    assert cancels(back(bench, a=Context.RESIDENT)) == []


def test_a_cancel_that_an_agent_does_not_know_is_refused_and_changes_nothing(bench: Bench) -> None:
    bench.tell(NodeUp(bench.at, "n1", (report("a", context=Context.RESIDENT), report("b")), cancels=False))
    order = ordered(bench, Verb.SNAPSHOT)

    with pytest.raises(WrongState, match=r"agent of node n1 is of a release that cannot cancel; upgrade it"):
        bench.cancel_moves("a")
    ended = bench.fails(order)
    back(bench, a=Context.RESIDENT)

    assert [one.wake.at for one in of(WakeMe, ended)] == [bench.at + BACK_OFF_S[0]], "it counted as cancelled"
    assert cancels(bench.cancel_moves("a")) == [("n1", "a", "")]
