"""What is told of groups, places and turns that last."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core.commands import Grant, Operate, Place
from slurm_interleave.orchestrator.core.events import Registered
from slurm_interleave.orchestrator.core.slices import live_slices
from slurm_interleave.orchestrator.core.status import GroupState
from tests.orchestrator.core.bench import Bench, of, places, report, settle


@pytest.fixture
def bench() -> Bench:
    bench = Bench("n1")
    bench.start("a")
    bench.start("b")
    return bench


def state(bench: Bench) -> GroupState:
    assert bench.core.standings.since("g")[0] is bench.core.standings.view("g").state
    return bench.core.standings.view("g").state


def test_a_group_goes_from_idle_to_locked_to_warm_to_switching(bench: Bench) -> None:
    assert state(bench) is GroupState.IDLE
    bench.acquire("a")
    assert state(bench) is GroupState.LOCKED
    bench.yield_("a")
    assert state(bench) is GroupState.WARM
    [save] = of(Operate, bench.acquire("b"))
    assert state(bench) is GroupState.SWITCHING
    bench.done(save)
    assert state(bench) is GroupState.LOCKED


def test_a_group_whose_agent_is_away_is_unknown_unless_it_is_held(bench: Bench) -> None:
    bench.node_down("n1")
    assert state(bench) is GroupState.UNKNOWN
    bench.node_up("n1", report("a", nodes=("n1",)), report("b", nodes=("n1",)))
    assert state(bench) is GroupState.IDLE

    bench.acquire("a")
    bench.node_down("n1")

    assert state(bench) is GroupState.LOCKED


def test_the_time_of_a_state_moves_with_the_state_alone(bench: Bench) -> None:
    bench.at = 200
    bench.acquire("a")
    bench.at = 300
    bench.acquire("b")
    bench.acquire("a")
    assert bench.core.standings.since("g") == (GroupState.LOCKED, 200)

    bench.at = 400
    bench.yield_("a")

    assert bench.core.standings.since("g") == (GroupState.SWITCHING, 400)


def test_a_group_without_jobs_is_forgotten(bench: Bench) -> None:
    bench.part_over("a")
    bench.part_over("b")

    assert bench.core.standings.since("g") == (GroupState.IDLE, 0.0)
    assert not bench.core.state.groups


def test_while_one_holds_and_another_waits_the_lock_names_the_holder(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")

    view = bench.core.standings.view("g")

    assert (view.locking, view.active, view.loaded, view.waiting) == ("a", "a", "a", 1)


def test_during_a_switch_the_lock_names_who_comes(bench: Bench) -> None:
    bench.turn("a")
    bench.acquire("b")

    view = bench.core.standings.view("g")

    assert (view.locking, view.loaded, view.waiting) == ("b", "", 0)


def test_a_waiter_is_told_its_place_and_each_change_of_it(bench: Bench) -> None:
    bench.start("c")
    bench.acquire("a")
    assert places(bench.acquire("b")) == [({2}, 1, "")]
    assert places(bench.acquire("c")) == [({3}, 2, "")]

    moved = places(bench.yield_("a"))

    assert moved == [({2}, 0, "its turn has come, device state is being moved"), ({3}, 1, "")]


def test_a_place_that_does_not_change_is_not_told_again(bench: Bench) -> None:
    bench.start("c", n1=(0, 1))
    bench.start("d", n1=(1,))
    bench.acquire("a")
    bench.acquire("b")

    assert places(bench.acquire("d")) == []
    assert places(bench.acquire("c")) == [({4}, 3, "")]


def test_a_second_call_of_a_waiter_is_told_the_place_too(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")

    assert places(bench.acquire("b")) == [({2, 3}, 1, "")]


def test_a_silent_caller_is_told_of_the_grant_alone(bench: Bench) -> None:
    bench.start("c")
    bench.acquire("a")
    assert places(bench.acquire("b", silent=True)) == []
    assert places(bench.acquire("c")) == [({3}, 2, "")]

    yielded = bench.yield_("a")
    granted = settle(bench, yielded)

    assert places(yielded) == [({3}, 1, "")]
    assert [grant.calls for grant in of(Grant, granted)] == [{2}]


def test_who_was_silent_is_told_its_place_when_it_listens(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b", silent=True)

    assert places(bench.acquire("b")) == [({3}, 1, "")]


def test_who_comes_back_is_told_its_place_again(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")
    bench.cancel(2)

    assert places(bench.acquire("b")) == [({3}, 1, "")]


def test_everybody_is_told_his_first_place_however_long_the_queue(bench: Bench) -> None:
    jobs = [f"job{number}" for number in range(20)]
    for job in jobs:
        bench.start(job)
    bench.acquire("a")

    told = [of(Place, bench.acquire(job)) for job in jobs]

    assert [place.ahead for [place] in told] == list(range(1, 21))


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("away", "the agent of node n1 is away"),
        ("faulted", "job a is faulted and keeps device n1/0 until it ends or is cleared"),
        ("missing", "node n2 has not registered the job"),
    ],
)
def test_a_waiter_at_the_head_is_told_what_it_waits_for(bench: Bench, why: str, reason: str) -> None:
    job = "b"
    if why == "away":
        bench.node_down("n1")
    elif why == "faulted":
        bench.turn("a")
        bench.node_up(
            "n1",
            report("a", nodes=("n1",), context=Context.FAULTED, fault="lost"),
            report("b", nodes=("n1",)),
        )
    else:
        job = "c"
        bench.tell(Registered(bench.at, "n1", report("c", nodes=("n1", "n2"))))

    assert [place[1:] for place in places(bench.acquire(job))] == [(0, reason)]


def test_during_a_back_off_the_reason_is_told_and_after_it_no_more(bench: Bench) -> None:
    bench.turn("a")
    ended = bench.fail_snapshots(bench.acquire("b"))

    assert places(ended)[-1][2] == "a switch failed and is tried again soon"
    again = bench.wake(ended)
    assert places(again)[-1][2] == "its turn has come, device state is being moved"


def test_turns_that_last_or_wait_are_listed_too(bench: Bench) -> None:
    bench.acquire("a", phase="train")
    bench.acquire("b", phase="rollout")

    live = {row.job_id: row for row in live_slices(bench.core.state)}

    assert (live["a"].state, live["a"].phase, live["a"].ended) == (SliceState.RUNNING, "train", 0)
    assert (live["b"].state, live["b"].phase, live["b"].granted) == (SliceState.WAITING, "rollout", 0)
