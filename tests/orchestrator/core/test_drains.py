"""Jobs whose processes are being saved: they get no turn, and their agent moves their state unasked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import Operate, Verb
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.bench import Bench, granted, of, places, report, settle


def test_a_job_that_is_being_drained_gets_no_turn_until_it_goes_on() -> None:
    bench = Bench()
    bench.start("A")
    bench.tell(ev.Draining(bench.at, "A", "n1", True))

    assert places(bench.acquire("A")) == [({1}, 0, "the job's processes are being saved")]
    assert granted(bench.tell(ev.Draining(bench.at, "A", "n1", False))) == ["A"]


def test_a_job_whose_agent_is_lost_while_it_is_drained_gets_no_turn_until_the_agent_is_back() -> None:
    bench = Bench()
    bench.start("A")
    bench.tell(ev.Draining(bench.at, "A", "n1", True))
    bench.acquire("A")

    assert granted(bench.tell(ev.NodeDown(bench.at, "n1"))) == []
    assert granted(bench.node_up("n1", report("A", nodes=("n1",)))) == ["A"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_is_drained_until_its_agent_says_otherwise_whatever_became_of_the_link(restarted: bool) -> None:
    bench = Bench()
    bench.start("A")
    bench.tell(ev.Draining(bench.at, "A", "n1", True))
    bench.tell(ev.NodeDown(bench.at, "n1"))
    if restarted:
        bench.restart()
    bench.node_up("n1", report("A", nodes=("n1",), being_saved=True))

    assert places(bench.acquire("A")) == [({1}, 0, "the job's processes are being saved")]
    assert granted(bench.node_up("n1", report("A", nodes=("n1",)))) == ["A"]


@pytest.mark.parametrize("found", [Context.SAVED, Context.RESIDENT])
def test_where_the_state_of_a_drained_job_is_is_not_known_until_its_agent_says_so_not_even_after_a_restart(
    found: Context,
) -> None:
    bench = Bench()
    bench.start("A")
    bench.turn("A")
    warm = bench.context("A")
    bench.tell(ev.Draining(bench.at, "A", "n1", True))
    during = bench.context("A")
    bench.tell(ev.Registered(bench.at, "n1", report("A", nodes=("n1",), context=Context.RESIDENT)))
    looked = bench.context("A")
    bench.restart()

    assert (warm, during, looked) == (Context.RESIDENT, Context.UNKNOWN, Context.UNKNOWN)
    assert granted(bench.acquire("A")) == []
    out = bench.node_up("n1", report("A", nodes=("n1",), context=found, bytes=5))
    assert (granted(out) == ["A"]) == (found is Context.RESIDENT)
    assert granted(settle(bench, out)) == ["A"]


def test_a_job_whose_state_a_drain_has_not_moved_is_resident_when_that_has_failed() -> None:
    bench = Bench()
    bench.start("A")
    bench.turn("A")
    bench.tell(ev.Draining(bench.at, "A", "n1", True))

    bench.tell(ev.Draining(bench.at, "A", "n1", False))

    assert bench.context("A") is Context.RESIDENT


def test_what_an_agent_says_of_an_earlier_run_stops_no_later_one() -> None:
    bench = Bench()
    later = report("A", attempt="2", nodes=("n2",), restarts=1, started=200.0)
    bench.tell(ev.Registered(bench.at, "n2", later))
    bench.node_up("n1", report("A", nodes=("n1",), restarts=0, started=100.0, being_saved=True))

    assert granted(bench.acquire("A")) == ["A"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_run_that_is_over_and_still_being_saved_stops_no_later_one_in_another_group(
    restarted: bool,
) -> None:
    bench = Bench()
    bench.start("A", "g", n1=(0,))
    bench.tell(ev.Draining(bench.at, "A", "n1", True))
    bench.job_over("A")
    bench.start("A", "h", n2=(0,))
    if restarted:
        bench.restart()
        bench.node_up("n2", report("A", "h", nodes=("n2",)))
        bench.node_up("n1", report("A", "g", nodes=("n1",), being_saved=True))

    assert granted(bench.acquire("A", "h")) == ["A"]


def test_a_word_that_the_run_before_is_over_ends_no_drain_of_the_later_one_on_its_node() -> None:
    bench = Bench()
    bench.tell(ev.Registered(bench.at, "n1", report("A", "g", nodes=("n1",), started=100.0)))
    bench.tell(
        ev.Registered(bench.at, "n1", report("A", "h", "2", nodes=("n1",), started=300.0, devices=(1,)))
    )
    bench.tell(ev.Draining(bench.at, "A", "n1", True))

    bench.job_over("A", 200.0)

    assert bench.core.state.members[Key("A", "g")].over
    assert granted(bench.acquire("A", "h")) == []


def test_others_do_not_wait_for_a_job_that_is_being_drained() -> None:
    bench = Bench()
    for job in "ABC":
        bench.start(job)
    bench.turn("A")
    bench.acquire("A")
    bench.acquire("B")
    bench.acquire("C")
    bench.tell(ev.Draining(bench.at, "B", "n1", True))

    settle(bench, bench.yield_("A"))

    assert bench.holds("C")


def test_a_job_that_starts_again_after_a_drain_gets_its_turn() -> None:
    bench = Bench()
    bench.start("A")
    bench.tell(ev.Draining(bench.at, "A", "n1", True))
    bench.part_over("A")

    bench.start("A", attempt="2")

    assert granted(bench.acquire("A")) == ["A"]


def in_two_groups() -> Bench:
    """Job A is in group g on n1, where it is being saved, and in group h on n2; nobody knows of both."""
    bench = Bench()
    bench.start("A", "g", n1=(0,))
    bench.tell(ev.Draining(bench.at, "A", "n1", True))
    bench.start("A", "h", n2=(0,))
    return bench


@pytest.mark.parametrize(
    "says",
    [
        lambda bench: bench.node_up("n2", report("A", "h", nodes=("n2",))),
        lambda bench: bench.tell(ev.Draining(bench.at, "A", "n2", False)),
        lambda bench: bench.part_over("B", "n2"),
        lambda bench: bench.start("A", "h", attempt="2", n2=(0,)),
    ],
    ids=["hello", "answer", "end of another", "start"],
)
@pytest.mark.parametrize("group", ["g", "h"])
def test_what_one_node_says_of_a_job_does_not_end_what_another_does(
    says: Callable[[Bench], object], group: str
) -> None:
    bench = in_two_groups()

    says(bench)

    assert granted(bench.acquire("A", group)) == []


def save_that_fails(bench: Bench) -> Operate:
    """Return an order of a switch that will leave job A where it is."""
    save, _ = of(Operate, bench.acquire("B"))
    return save


def undo(bench: Bench) -> Operate:
    """Return the order that brings job A back, since the switch to B has failed."""
    save, load = of(Operate, bench.acquire("B"))
    [back] = of(Operate, bench.done(save) + bench.fails(load))
    return back


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("begun", [save_that_fails, undo])
def test_no_end_of_an_earlier_order_makes_the_state_of_a_job_known_that_is_drained(
    begun: Callable[[Bench], Operate], restarted: bool
) -> None:
    """Its agent goes on with the drain after that order, and saves it."""
    bench = Bench()
    for job in "BA":
        bench.start(job)
        bench.turn(job)
    order = begun(bench)
    bench.tell(ev.Draining(bench.at, "A", "n1", True))

    bench.done(order, ok=order.verb is Verb.RESTORE, context=Context.RESIDENT)
    known = bench.context("A")
    bench.node_down("n1")
    if restarted:
        bench.restart()

    assert known is Context.UNKNOWN
    assert granted(bench.acquire("A")) == []


def unsure_of_its_run(**said: object) -> Bench:
    """The agent of n1 names a run of A, while another is known on n2: which is over is to come."""
    bench = Bench()
    bench.tell(ev.Registered(bench.at, "n2", report("A", attempt="2", nodes=("n2",))))
    bench.node_up("n1", report("A", nodes=("n1",), **said))
    assert not bench.core.state.on_node.get("n1")
    return bench


def test_an_attempt_that_was_put_aside_while_it_is_saved_gets_no_turn_when_it_is_taken_up() -> None:
    bench = unsure_of_its_run(being_saved=True)

    bench.part_over("A", "n2", "2")

    assert places(bench.acquire("A")) == [({1}, 0, "the job's processes are being saved")]
    assert granted(bench.tell(ev.Draining(bench.at, "A", "n1", False))) == ["A"]


def test_an_attempt_that_was_put_aside_and_is_saved_no_more_gets_its_turn() -> None:
    bench = unsure_of_its_run(being_saved=True)

    bench.tell(ev.Draining(bench.at, "A", "n1", False))
    bench.part_over("A", "n2", "2")

    assert granted(bench.acquire("A")) == ["A"]


def test_what_is_said_later_of_an_attempt_that_was_put_aside_counts() -> None:
    bench = unsure_of_its_run(context=Context.RESIDENT)

    saved = report("A", nodes=("n1",), context=Context.SAVED, bytes=5)
    bench.tell(ev.Registered(bench.at, "n1", saved))

    assert bench.context("A") is Context.SAVED
