"""Jobs that end, however they end, and jobs that start again."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import JobEnded, JobFaulted, NotRegistered
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core.commands import Operate, Verb
from slurm_interleave.orchestrator.core.events import Registered
from tests.orchestrator.core.bench import Bench, granted, of, orders, refused, report, settle


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.start("a")
    bench.start("b")
    return bench


def test_a_holder_that_ends_frees_its_devices_at_once(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")

    assert granted(bench.part_over("a")) == ["b"]
    assert bench.slices() == [("a", SliceState.JOB_ENDED)]


def test_a_waiter_that_ends_is_told_and_leaves_the_queue(bench: Bench) -> None:
    bench.start("c")
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("c")

    assert refused(bench.part_over("b")) == [JobEnded]
    assert granted(settle(bench, bench.yield_("a"))) == ["c"]


def test_a_job_that_ends_with_its_context_saved_leaves_nothing(bench: Bench) -> None:
    bench.turn("a")
    bench.turn("b")

    bench.part_over("a")
    bench.part_over("b")

    assert bench.memory.rows == {}
    with pytest.raises(NotRegistered):
        bench.acquire("a")


def test_a_job_that_ends_while_it_is_saved_lets_the_next_one_in(bench: Bench) -> None:
    bench.turn("a")
    [save] = of(Operate, bench.acquire("b"))

    assert granted(bench.part_over("a")) == ["b"]
    assert granted(bench.done(save, context=Context.NONE)) == [], "its late result changes nothing"
    assert bench.context("b") is Context.RESIDENT


def test_a_job_that_ends_while_it_is_restored_lets_the_next_one_in(bench: Bench) -> None:
    bench.start("c")
    bench.turn("a")
    bench.turn("b")
    save, _load = of(Operate, bench.acquire("a"))
    bench.acquire("c")
    bench.done(save)

    assert granted(bench.part_over("a")) == ["c"]


def test_a_job_over_on_one_node_ends_its_turn_on_all_but_keeps_what_is_not_cleaned_up() -> None:
    bench = Bench()
    bench.start("a", n1=(0,), n2=(0,))
    bench.start("b", n2=(0,))
    bench.acquire("a")

    bench.part_over("a", "n1")

    assert not bench.holds("a")
    assert orders(bench.acquire("b")) == [("snapshot", "a", "n2")], "its state is still there"
    assert granted(bench.part_over("a", "n2")) == ["b"]


def test_slurm_ends_the_turn_of_a_job_on_dead_nodes_too() -> None:
    bench = Bench()
    bench.start("a", n1=(0,), n2=(0,))
    bench.start("b", n1=(0,))
    bench.acquire("a")
    bench.node_down("n2")
    bench.acquire("b")

    commands = bench.job_over("a")

    assert not bench.holds("a")
    assert orders(commands) == [("snapshot", "a", "n1")]
    assert granted(bench.part_over("a", "n1")) == ["b"]
    assert ("a", "g") not in bench.core.state.members


def test_the_end_of_an_unknown_job_is_fine(bench: Bench) -> None:
    assert bench.part_over("nobody") == []
    assert bench.job_over("nobody") == []
    assert bench.part_over("a", attempt="another") == []
    assert granted(bench.acquire("a")) == ["a"]


def test_an_agent_that_names_a_job_no_more_has_ended_it(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")

    assert granted(bench.node_up("n1", report("b"))) == ["b"]
    assert bench.slices() == [("a", SliceState.JOB_ENDED)]


def test_a_job_that_starts_again_starts_clean(bench: Bench) -> None:
    bench.turn("a")
    [save] = of(Operate, bench.acquire("b"))
    bench.fails(save, "driver crashed", context=Context.FAULTED)
    with pytest.raises(JobFaulted):
        bench.acquire("a")

    restarted = bench.start("a", attempt="2")

    assert granted(settle(bench, restarted)) == ["b"]
    bench.yield_("b")
    assert granted(settle(bench, bench.acquire("a"))) == ["a"]


def test_a_late_result_of_the_last_run_does_not_touch_the_next(bench: Bench) -> None:
    bench.turn("a")
    [save] = of(Operate, bench.acquire("b"))
    bench.start("a", attempt="2")

    bench.done(save)

    assert bench.context("a") is Context.NONE
    assert bench.holds("b")


def test_a_job_that_starts_again_elsewhere_does_not_wait_for_its_old_switch() -> None:
    bench = Bench()
    bench.start("a", n1=(0,))
    bench.start("b", n1=(0,))
    bench.turn("b")
    [save] = of(Operate, bench.acquire("a"))
    bench.start("c", n2=(0,))
    bench.turn("c")
    bench.part_over("a", "n1")
    bench.start("a", attempt="2", n2=(0,))
    assert orders(bench.acquire("a")) == [], "one switch of a job at a time"

    commands = settle(bench, bench.done(save))

    assert granted(commands) == ["a"]


def test_a_node_that_was_away_does_not_bring_a_past_run_back() -> None:
    bench = Bench()
    bench.start("a", n1=(0,), n2=(0,))
    bench.node_down("n2")
    bench.part_over("a", "n1")
    bench.job_over("a")
    bench.start("a", attempt="2", n1=(0,))
    bench.acquire("a")

    bench.node_up("n2", report("a", attempt="1", nodes=("n1", "n2")))
    bench.part_over("a", "n2", attempt="1")

    assert bench.holds("a")


def test_a_run_that_is_named_before_the_last_one_is_known_to_be_over_is_taken_up_then() -> None:
    bench = Bench()
    nodes = ("n1", "n2")
    bench.node_down("n2")
    bench.start("a", n1=(0,))
    bench.node_up("n2", report("a", attempt="2", nodes=nodes))

    bench.part_over("a", "n1", attempt="1")
    bench.tell(Registered(bench.at, "n1", report("a", attempt="2", nodes=nodes)))

    assert granted(bench.acquire("a")) == ["a"]
    assert {device.node for device in bench.core.state.devices(next(iter(bench.core.state.members)))} == {
        "n1",
        "n2",
    }


def test_a_node_that_missed_the_end_of_the_last_run_joins_the_next_when_it_starts_it() -> None:
    bench = Bench()
    nodes = ("n1", "n2")
    bench.start("a", n1=(0,), n2=(0,))
    bench.node_down("n2")
    bench.part_over("a", "n1")
    bench.tell(Registered(bench.at, "n1", report("a", attempt="2", nodes=nodes)))
    bench.node_up("n2", report("a", attempt="1", nodes=nodes))
    bench.part_over("a", "n2", attempt="1")

    bench.tell(Registered(bench.at, "n2", report("a", attempt="2", nodes=nodes)))

    assert granted(bench.acquire("a")) == ["a"]


def test_a_job_may_be_in_several_groups_on_one_node() -> None:
    bench = Bench("n1")
    bench.start("a", "trainer", n1=(0,))

    bench.start("a", "sampler", n1=(1,))

    assert granted(bench.acquire("a", "trainer")) == ["a"]
    assert granted(bench.acquire("a", "sampler")) == ["a"]


def test_a_part_that_joins_late_takes_the_grant_back() -> None:
    bench = Bench()
    bench.tell(Registered(bench.at, "n1", report("a")))
    bench.acquire("a")
    bench.at += 5

    bench.tell(Registered(bench.at, "n2", report("a")))

    assert bench.slices() == [("a", SliceState.REVOKED)]
    [ended] = bench.memory.slices.values()
    assert ended.ended - ended.granted == 5


def test_a_job_that_the_agent_calls_faulted_is_refused(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")

    commands = bench.node_up(
        "n1", report("a"), report("b", context=Context.FAULTED, fault="restore: driver crashed")
    )

    assert refused(commands) == [JobFaulted]
    with pytest.raises(JobFaulted, match="restore: driver crashed"):
        bench.acquire("b")


def test_a_job_may_save_itself_through_its_own_agent(bench: Bench) -> None:
    bench.turn("a")

    bench.tell(Registered(bench.at, "n1", report("a", context=Context.SAVED, bytes=7)))

    assert granted(bench.acquire("b")) == ["b"], "its devices are free"
    bench.yield_("b")
    moves = of(Operate, bench.acquire("a"))
    assert [move.verb for move in moves] == [Verb.SNAPSHOT, Verb.RESTORE]


def test_a_word_of_nothing_that_is_older_than_a_turn_does_not_free_the_devices() -> None:
    bench = Bench()
    bench.start("a")
    bench.start("b")
    bench.turn("a")

    bench.node_up("n1", report("a"), report("b"))  # looked before the turn, or cannot see

    assert orders(bench.acquire("b")) == [("snapshot", "a", "n1")]
