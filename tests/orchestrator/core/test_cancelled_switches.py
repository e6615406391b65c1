"""Switches that are cancelled by order, on one node or several."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.commands import Command, Operate, Verb, WakeMe
from slurm_interleave.orchestrator.core.switches import ATTEMPTS, BACK_OFF_S
from tests.orchestrator.core.bench import Bench, bench, by_node, cancels, granted, of, report, settle

__all__ = ["bench"]


def test_a_cancelled_snapshot_is_stopped_on_each_node_and_tried_again_after_the_longest_back_off(
    bench: Bench,
) -> None:
    ordered = by_node(of(Operate, bench.acquire("b")))

    stops = bench.cancel_moves("a")
    bench.fails(ordered["n1"], "cancelled")
    ended = bench.fails(ordered["n2"], "cancelled")

    assert cancels(stops) == [(node, "a", ordered[node].operation) for node in ("n1", "n2")]
    assert bench.context("a", "n1") is bench.context("a", "n2") is Context.RESIDENT
    assert bench.waits("b")
    assert [command.wake.at for command in of(WakeMe, ended)] == [bench.at + BACK_OFF_S[-1]]
    assert granted(settle(bench, bench.wake(ended))) == ["b"]


@pytest.mark.parametrize("verb", list(Verb)[:2], ids=lambda verb: verb.value)
def test_a_job_is_not_faulted_however_often_its_moves_are_cancelled(bench: Bench, verb: Verb) -> None:
    bench.turn("b")
    whose = {Verb.SNAPSHOT: "b", Verb.RESTORE: "a"}[verb]
    ended = bench.acquire("a")

    for _ in range(2 * ATTEMPTS):
        bench.cancel_moves(whose)
        out: list[Command] = []
        for order in of(Operate, ended):
            cancelled = order.verb is verb
            if bench.core.switches.under_way(order.operation):
                out += bench.fails(order, "cancelled") if cancelled else bench.done(order)
        ended = bench.wake(settle(bench, out))

    assert (bench.fault("a"), bench.fault("b"), bench.waits("a")) == ("", "", True)
    assert granted(settle(bench, ended)) == ["a"]


def test_a_cancelled_move_that_loses_the_state_is_a_fault_as_any_other(bench: Bench) -> None:
    ordered = by_node(of(Operate, bench.acquire("b")))
    bench.cancel_moves("a")

    bench.fails(ordered["n1"], "the driver crashed", context=Context.FAULTED)
    bench.fails(ordered["n2"], "cancelled")

    assert "the driver crashed" in bench.fault("a")


def test_a_cancelled_move_that_was_too_far_to_be_stopped_counts_as_made(bench: Bench) -> None:
    ordered = of(Operate, bench.acquire("b"))
    bench.cancel_moves("a")

    assert granted(bench.done(ordered[0]) + bench.done(ordered[1])) == ["b"]


def test_what_the_orchestrator_has_not_ordered_is_cancelled_by_the_agents_of_the_job(bench: Bench) -> None:
    assert cancels(bench.cancel_moves("a")) == [("n1", "a", ""), ("n2", "a", "")]


def test_an_agent_that_comes_back_hears_of_the_cancel_again(bench: Bench) -> None:
    ordered = by_node(of(Operate, bench.acquire("b")))
    bench.cancel_moves("a")
    bench.node_down("n1")

    again = bench.node_up("n1", *(report(job, devices=(0,), nodes=("n1", "n2")) for job in "ab"))

    assert [order.operation for order in of(Operate, again)] == [ordered["n1"].operation]
    assert cancels(again) == [("n1", "a", ordered["n1"].operation)]
