"""Switches that fail, and nodes that go away in the middle of one."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import JobFaulted
from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core.commands import Command, Operate, Verb, WakeMe
from tests.orchestrator.core.bench import (
    BOTH,
    Bench,
    bench,
    by_node,
    granted,
    lease,
    of,
    orders,
    refused,
    report,
    settle,
)

__all__ = ["bench"]


def test_all_nodes_are_switched_before_the_grant(bench: Bench) -> None:
    ordered = by_node(of(Operate, bench.acquire("b")))

    assert ordered.keys() == BOTH.keys()
    assert granted(bench.done(ordered["n2"])) == []
    assert granted(bench.done(ordered["n1"])) == ["b"]


def test_each_node_restores_after_its_own_snapshot_alone(bench: Bench) -> None:
    bench.turn("b")

    ordered = of(Operate, bench.acquire("a"))

    saves = {o.node: o.operation for o in ordered if o.verb is Verb.SNAPSHOT}
    assert {o.node: o.after for o in ordered if o.verb is Verb.RESTORE} == {
        node: (number,) for node, number in saves.items()
    }


def test_a_snapshot_that_fails_is_undone_on_the_other_nodes(bench: Bench) -> None:
    ordered = by_node(of(Operate, bench.acquire("b")))
    bench.done(ordered["n1"])

    undo = bench.fails(ordered["n2"])

    assert orders(undo) == [("restore", "a", "n1")]
    bench.done(of(Operate, undo)[0])
    assert bench.context("a", "n1") is bench.context("a", "n2") is Context.RESIDENT


def test_after_a_failure_it_is_tried_again_later(bench: Bench) -> None:
    ordered = by_node(of(Operate, bench.acquire("b")))
    bench.done(ordered["n1"])
    ended = settle(bench, bench.fails(ordered["n2"]))

    assert orders(ended) == [("restore", "a", "n1")]
    assert [command.wake.at for command in of(WakeMe, ended)] == [bench.at + 1]
    again = bench.wake(ended)
    assert orders(again) == [("snapshot", "a", "n1"), ("snapshot", "a", "n2")]
    assert granted(settle(bench, again)) == ["b"]


def test_a_new_caller_during_the_back_off_is_granted_after_it(bench: Bench) -> None:
    ended = bench.fail_snapshots(bench.acquire("b"))
    bench.cancel(2)
    assert orders(bench.acquire("b")) == []

    again = bench.wake(ended)

    assert granted(settle(bench, again)) == ["b"]


def test_the_third_failure_faults_the_job_that_cannot_be_saved_and_no_other(bench: Bench) -> None:
    commands = bench.acquire("b")
    for _ in range(3):
        assert not bench.fault("a")
        commands = bench.wake(bench.fail_snapshots(commands))

    with pytest.raises(JobFaulted, match="snapshot on node n2: no memory"):
        bench.acquire("a")
    assert bench.waits("b")
    assert not bench.fault("b")


def test_a_success_in_between_makes_the_failures_forgotten(bench: Bench) -> None:
    for _ in range(2):
        commands = bench.acquire("b")
        for _ in range(2):
            commands = bench.wake(bench.fail_snapshots(commands))
        assert granted(settle(bench, commands)) == ["b"]
        bench.yield_("b")
        bench.turn("a")

    assert not bench.fault("a")


def test_a_faulted_job_keeps_its_devices_until_it_ends_and_others_go_on(bench: Bench) -> None:
    bench.start("c", n2=(1,))
    ordered = by_node(of(Operate, bench.acquire("b")))
    bench.done(ordered["n1"])
    bench.fails(ordered["n2"], "driver crashed", context=Context.FAULTED)

    assert granted(bench.acquire("c")) == ["c"]
    assert bench.waits("b")
    bench.part_over("a", "n1")
    ended = bench.part_over("a", "n2")

    assert granted(settle(bench, ended)) == ["b"]


def test_a_restore_that_fails_takes_off_what_was_restored_and_leaves_the_place(bench: Bench) -> None:
    bench.turn("b")
    ordered = of(Operate, bench.acquire("a"))
    saves = [order for order in ordered if order.verb is Verb.SNAPSHOT]
    loads = by_node([order for order in ordered if order.verb is Verb.RESTORE])
    for order in saves:
        bench.done(order)
    bench.done(loads["n1"])

    undo = bench.fails(loads["n2"])

    assert sorted(orders(undo)) == [
        ("restore", "b", "n1"),
        ("restore", "b", "n2"),
        ("snapshot", "a", "n1"),
    ]
    ended = settle(bench, undo)
    assert bench.context("b", "n1") is bench.context("b", "n2") is Context.RESIDENT
    assert bench.context("a", "n1") is bench.context("a", "n2") is Context.SAVED
    assert bench.waits("a")
    assert granted(settle(bench, bench.wake(ended))) == ["a"]


def test_a_restore_whose_snapshot_failed_is_nobodys_fault() -> None:
    bench = Bench()
    bench.start("a")
    bench.start("b")
    bench.turn("a")
    bench.turn("b")
    commands = bench.acquire("a")
    for _ in range(3):
        save, load = of(Operate, commands)
        commands = bench.fails(save)
        assert bench.context("a") is Context.SAVED
        bench.fails(load, "not begun")
        commands = bench.wake(commands)

    assert bench.fault("b")
    assert not bench.fault("a")
    assert bench.waits("a")


def test_the_third_failed_restore_faults_the_job_that_came_and_the_next_goes_on(bench: Bench) -> None:
    bench.turn("b")
    commands = bench.acquire("a")
    bench.acquire("b")
    for _ in range(3):
        out: list[Command] = []
        for order in of(Operate, commands):
            out += bench.done(order) if order.verb is Verb.SNAPSHOT else bench.fails(order)
        ended = settle(bench, out)
        assert not bench.holds("b") or granted(ended) == ["b"]
        commands = bench.wake(ended)

    assert refused(ended) == [JobFaulted]
    assert granted(ended) == ["b"]


def test_a_restore_that_loses_the_state_faults_at_once_and_nothing_comes_back_onto_it() -> None:
    bench = Bench()
    bench.start("a")
    bench.start("b")
    bench.turn("a")
    bench.turn("b")
    save, load = of(Operate, bench.acquire("a"))
    bench.done(save)

    commands = bench.fails(load, "driver crashed", context=Context.FAULTED)

    assert refused(commands) == [JobFaulted]
    assert orders(commands) == [], "b must not be restored onto a lost context"
    assert bench.context("b") is Context.SAVED


def test_a_snapshot_that_says_done_while_the_state_is_still_there_has_failed(bench: Bench) -> None:
    ordered = by_node(of(Operate, bench.acquire("b")))

    bench.done(ordered["n1"])
    commands = bench.done(ordered["n2"], context=Context.RESIDENT)

    assert granted(settle(bench, commands)) == []
    assert bench.waits("b")


def test_a_node_that_comes_back_hears_the_same_orders_again(bench: Bench) -> None:
    ordered = by_node(of(Operate, bench.acquire("b")))
    bench.node_down("n2")
    here = {"devices": (0,), "nodes": ("n1", "n2")}

    again = bench.node_up(
        "n2", report("a", **here, context=Context.SAVING), report("b", **here, context=Context.NONE)
    )

    assert of(Operate, again) == [ordered["n2"]]
    bench.done(ordered["n1"])
    assert granted(bench.done(ordered["n2"])) == ["b"]
    assert granted(bench.done(ordered["n2"])) == [], "a repeated result changes nothing"


def test_a_switch_waits_for_the_agent_that_is_away(bench: Bench) -> None:
    bench.node_down("n2")

    assert orders(bench.acquire("b")) == []

    here = {"devices": (0,), "nodes": ("n1", "n2")}
    back = bench.node_up("n2", report("a", **here, context=Context.RESIDENT), report("b", **here))
    assert granted(settle(bench, back)) == ["b"]


def test_the_warm_job_is_granted_although_the_agent_is_away(bench: Bench) -> None:
    bench.node_down("n2")

    assert granted(bench.acquire("a")) == ["a"]


def test_a_caller_who_goes_in_the_middle_leaves_the_devices_to_the_next(bench: Bench) -> None:
    bench.start("c", **BOTH)
    commands = bench.acquire("b")
    bench.acquire("c")

    bench.cancel(2)

    assert granted(settle(bench, commands)) == ["c"]
    assert lease([*bench.acquire("c")]).job_id == "c"


def test_what_an_agent_says_of_an_unknown_operation_is_not_believed() -> None:
    bench = Bench()
    bench.start("a")
    bench.turn("a")

    bench.done(Operate("0-99", Verb.SNAPSHOT, "n1", "a", "1"))

    assert bench.context("a") is Context.RESIDENT
