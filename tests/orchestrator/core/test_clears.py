"""The exit from a fault."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_interleave.client.core.errors import Busy, JobEnded, JobFaulted, NotRegistered, WrongState
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import Cleared, Command, Operate
from tests.orchestrator.core.bench import Bench, granted, of, orders, refused, report, settle

BOTH: dict[str, Any] = {"n1": (0,), "n2": (0,)}


def clear(bench: Bench, job: str = "a", *, keep: bool = False) -> list[Command]:
    return bench.tell(ev.Clear(bench.at, job, "g", ev.CallId(99), keep))


def discarded(bench: Bench, commands: list[Command], **said: Any) -> list[Command]:
    """Let the agents answer all discards; without more: well."""
    out: list[Command] = []
    for order in of(Operate, commands):
        out += bench.done(order, **said)
    return out


@pytest.fixture
def bench() -> Bench:
    """The device state of a on n2 is lost, that on n1 was brought back; b is on the same devices."""
    bench = Bench()
    bench.start("a", **BOTH)
    bench.start("b", **BOTH)
    bench.turn("a")
    first, second = of(Operate, bench.acquire("b"))
    bench.cancel(2)
    lost = first if first.node == "n2" else second
    undo = bench.done(second if lost is first else first)
    undo += bench.done(lost, ok=False, context=Context.FAULTED, error="the driver crashed")
    settle(bench, undo)
    assert bench.fault("a") == "snapshot on node n2: the driver crashed"
    return bench


def test_what_is_left_is_discarded_on_all_nodes_and_then_the_fault_is_over(bench: Bench) -> None:
    ordered = clear(bench)

    assert sorted(orders(ordered)) == [("discard", "a", "n1"), ("discard", "a", "n2")]
    assert bench.fault("a")
    ended = discarded(bench, ordered)
    [answer] = of(Cleared, ended)
    assert {(part.node, part.context) for part in answer.lost} == {
        ("n1", Context.RESIDENT),
        ("n2", Context.FAULTED),
    }
    assert not bench.fault("a")
    assert bench.context("a", "n1") is bench.context("a", "n2") is Context.NONE
    assert granted(bench.acquire("a")) == ["a"]


def test_until_the_last_node_has_discarded_nobody_gets_the_devices(bench: Bench) -> None:
    first, second = of(Operate, clear(bench))
    bench.acquire("b")

    bench.done(first)
    with pytest.raises(JobFaulted):
        bench.acquire("a")

    assert not bench.holds("b")
    assert granted(bench.done(second)) == ["b"]


def test_a_discard_that_fails_leaves_the_job_faulted_and_says_why(bench: Bench) -> None:
    ended = discarded(bench, clear(bench), ok=False, context=Context.FAULTED, error="it still works")

    assert refused(ended) == [WrongState]
    assert bench.fault("a")
    assert granted(discarded(bench, clear(bench)) and bench.acquire("a")) == ["a"]


def test_a_second_call_waits_for_the_same_discard(bench: Bench) -> None:
    ordered = clear(bench)

    assert of(Operate, clear(bench)) == []

    assert len(of(Cleared, discarded(bench, ordered))) == 1


def test_a_job_that_is_not_faulted_is_refused(bench: Bench) -> None:
    with pytest.raises(WrongState, match="not faulted"):
        clear(bench, "b")
    with pytest.raises(NotRegistered):
        clear(bench, "c")


def test_while_an_agent_is_away_nothing_is_discarded(bench: Bench) -> None:
    bench.node_down("n2")

    with pytest.raises(WrongState, match="agent of node n2 is away"):
        clear(bench)

    assert bench.fault("a")


def test_an_agent_that_comes_back_is_told_again(bench: Bench) -> None:
    ordered = clear(bench)
    bench.node_down("n2")
    here = report("a", devices=(0,), nodes=("n1", "n2"), context=Context.FAULTED, fault="lost")

    again = bench.node_up("n2", here, report("b", nodes=("n1", "n2")))

    assert orders(again) == [("discard", "a", "n2")]
    assert not discarded(bench, ordered) or not bench.fault("a")


def test_after_a_restart_it_is_faulted_as_before_and_can_be_cleared(bench: Bench) -> None:
    clear(bench)
    bench.restart()
    for node in ("n1", "n2"):
        bench.node_up(
            node,
            report("a", nodes=("n1", "n2"), context=Context.NONE),
            report("b", nodes=("n1", "n2")),
        )

    assert bench.fault("a")
    discarded(bench, clear(bench))
    assert not bench.fault("a")
    bench.restart()
    assert not bench.fault("a")


def test_a_job_that_ends_meanwhile_answers_the_call(bench: Bench) -> None:
    clear(bench)

    ended = bench.part_over("a", "n1") + bench.part_over("a", "n2")

    assert refused(ended) == [JobEnded]


def test_a_lease_that_a_faulted_job_still_holds_ends() -> None:
    bench = Bench()
    bench.start("b")
    bench.acquire("b")
    lost = report("b", nodes=("n1",), context=Context.FAULTED, fault="lost")
    bench.tell(ev.Registered(bench.at, "n1", lost))

    ordered = clear(bench, "b")

    assert not bench.holds("b")
    assert bench.slices() == [("b", SliceState.FAULTED)]
    assert of(Cleared, discarded(bench, ordered))


@pytest.fixture
def unsaved() -> Bench:
    """Three snapshots of a have failed and changed nothing."""
    bench = Bench()
    bench.start("a")
    bench.start("b")
    bench.turn("a")
    commands = bench.acquire("b")
    for _ in range(3):
        commands = bench.wake(bench.fail_snapshots(commands))
    assert bench.fault("a")
    return bench


def test_intact_state_is_kept_and_the_others_wait_no_more(unsaved: Bench) -> None:
    commands = clear(unsaved, keep=True)

    [answer] = of(Cleared, commands)
    assert answer.lost == ()
    assert not unsaved.fault("a")
    assert orders(commands) == [("snapshot", "a", "n1")]
    assert granted(settle(unsaved, commands)) == ["b"]


def test_lost_state_cannot_be_kept(unsaved: Bench) -> None:
    unsaved.node_up("n1", report("a", nodes=("n1",), context=Context.FAULTED, fault="lost"), report("b"))

    with pytest.raises(WrongState, match="on node n1 is not intact"):
        clear(unsaved, keep=True)


def test_failures_of_before_do_not_count_any_more(unsaved: Bench) -> None:
    commands = clear(unsaved, keep=True)
    unsaved.wake(unsaved.fail_snapshots(commands))

    assert not unsaved.fault("a")


def test_it_waits_for_no_agent(unsaved: Bench) -> None:
    unsaved.node_down("n1")

    assert of(Cleared, clear(unsaved, keep=True))


def test_a_move_under_way_is_not_disturbed() -> None:
    bench = Bench()
    bench.start("a", **BOTH)
    bench.start("b", **BOTH)
    bench.turn("a")
    first, _ = of(Operate, bench.acquire("b"))
    bench.done(first, ok=False, context=Context.FAULTED, error="crashed")
    bench.core.state.fault(bench.core.calls.find("a", "g"), "crashed")

    with pytest.raises(Busy):
        clear(bench)


def test_a_job_id_that_comes_again_starts_without_the_failures_of_before() -> None:
    bench = Bench()
    bench.start("a", **BOTH)
    bench.start("b", n1=(0,))
    bench.turn("a")
    commands = bench.acquire("b")
    for _ in range(2):
        commands = bench.wake(bench.fail_snapshots(commands))
    settle(bench, commands)
    bench.node_down("n2")
    bench.start("a", attempt="2", n1=(0,))
    bench.yield_("b")
    bench.turn("a")

    bench.wake(bench.fail_snapshots(bench.acquire("b")))

    assert not bench.fault("a")
