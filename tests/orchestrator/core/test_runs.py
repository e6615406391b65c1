"""A job that Slurm puts back runs again under its id: the earlier run never touches the later one."""

from __future__ import annotations

from itertools import permutations

import pytest

from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core.commands import Command
from slurm_interleave.orchestrator.core.events import Registered, Registration
from tests.orchestrator.core.bench import Bench, granted, report, settle

EARLIER, LATER = ("n1", "n2"), ("n2", "n3")
ONE, TWO = {"restarts": 0, "started": 1000.0}, {"restarts": 1, "started": 2000.0}


def first_run(*nodes: str) -> Registration:
    return report("a", attempt="1", nodes=nodes, **ONE)


def second_run(*nodes: str) -> Registration:
    return report("a", attempt="2", nodes=nodes, **TWO)


def registered(bench: Bench, node: str, job: Registration) -> list[Command]:
    return bench.tell(Registered(bench.at, node, job))


def holding_again() -> Bench:
    """Job a ran on n1 and n2, whose agents never heard of its end; it runs and holds again on n2 and n3."""
    bench = Bench("n1", "n2", "n3")
    for node in EARLIER:
        registered(bench, node, first_run(*EARLIER))
    bench.node_down("n1")
    bench.part_over("a", "n2", attempt="1")
    for node in LATER:
        registered(bench, node, second_run(*LATER))
    assert granted(settle(bench, bench.acquire("a"))) == ["a"]
    return bench


@pytest.mark.parametrize("order", list(permutations(("n1", "n2", "n3"))))
def test_after_a_restart_the_later_run_holds_on_whoever_says_hello_first(order: tuple[str, ...]) -> None:
    bench = holding_again()
    bench.restart()

    for node in order:
        bench.node_up(node, first_run(*EARLIER) if node == "n1" else second_run(*LATER))
    bench.part_over("a", "n1", attempt="1")

    assert bench.holds("a")
    assert bench.slices() == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_report_of_the_earlier_run_does_not_displace_the_later_one(restarted: bool) -> None:
    bench = holding_again()
    if restarted:
        bench.restart()
    bench.node_up("n1", first_run(*EARLIER))

    registered(bench, "n1", first_run(*EARLIER))  # as when its agent sees that its processes are gone
    bench.part_over("a", "n1", attempt="1")

    assert bench.holds("a")


def test_the_later_run_displaces_the_earlier_one_that_its_agent_still_names() -> None:
    bench = Bench("n1", "n2")
    registered(bench, "n1", first_run("n1"))
    bench.acquire("a")
    bench.restart()
    bench.node_up("n1", first_run("n1"))

    bench.node_up("n2", second_run("n2"))

    assert not bench.holds("a"), "the run that held is over"
    assert granted(bench.acquire("a")) == ["a"]
    bench.part_over("a", "n1", attempt="1")
    assert bench.holds("a")


def test_a_node_that_missed_the_end_does_not_join_the_next_run_with_its_old_attempt() -> None:
    bench = Bench("n1", "n2")
    both = ("n1", "n2")
    for node in both:
        registered(bench, node, first_run(*both))
    bench.node_down("n2")
    bench.part_over("a", "n1", attempt="1")
    registered(bench, "n1", second_run(*both))
    bench.restart()
    bench.node_up("n1", second_run(*both))

    bench.node_up("n2", first_run(*both))

    assert granted(bench.acquire("a")) == [], "n2 has not started the new run yet"
    bench.part_over("a", "n2", attempt="1")
    assert granted(registered(bench, "n2", second_run(*both))) == ["a"]


def test_an_end_that_an_agent_hears_of_late_does_not_end_the_run_that_has_begun_elsewhere() -> None:
    bench = Bench("n1", "n2")
    both = ("n1", "n2")
    for node in both:
        registered(bench, node, first_run(*both))
    # Both epilogs were missed; the prolog of n1 comes first.
    bench.part_over("a", "n1", attempt="1")
    registered(bench, "n1", second_run(*both))
    assert granted(bench.acquire("a")) == []

    bench.part_over("a", "n2", attempt="1")

    assert bench.waits("a")
    assert granted(registered(bench, "n2", second_run(*both))) == ["a"]


def test_a_run_whose_nodes_nobody_names_is_known_by_its_restarts() -> None:
    bench = Bench("n1", "n2")
    registered(bench, "n1", first_run())
    registered(bench, "n2", second_run())
    assert granted(bench.acquire("a")) == ["a"]

    registered(bench, "n1", report("a", attempt="1", context=Context.RESIDENT, **ONE))
    bench.part_over("a", "n1", attempt="1")

    assert bench.holds("a")


def test_a_job_id_that_slurm_gives_again_counts_by_its_age_not_by_its_restarts() -> None:
    bench = Bench("n1", "n2")
    registered(bench, "n1", report("a", attempt="old", nodes=("n1",), restarts=3, started=1000.0))
    bench.restart()
    bench.node_up("n1", report("a", attempt="old", nodes=("n1",), restarts=3, started=1000.0))

    bench.node_up("n2", report("a", attempt="new", nodes=("n2",), restarts=0, started=2000.0))

    assert granted(bench.acquire("a")) == ["a"]
    bench.part_over("a", "n1", attempt="old")
    assert bench.holds("a")


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("ended", [1000.0, 1500.0, 1999.9])
def test_a_late_word_of_slurm_that_the_earlier_run_is_over_does_not_end_the_later_one(
    ended: float, connected: bool
) -> None:
    bench = holding_again()
    if not connected:
        bench.node_down("n2")

    bench.job_over("a", ended)

    assert bench.holds("a")
    assert bench.slices() == []


def test_a_later_run_that_slurm_calls_over_is_over() -> None:
    bench = holding_again()

    bench.job_over("a", 2000.0)

    assert bench.slices() == [("a", SliceState.JOB_ENDED)]
