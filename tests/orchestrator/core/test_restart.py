"""The orchestrator is killed and starts again from what it had written."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.errors import JobFaulted, StaleLease
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.core.commands import Command, Operate, WakeMe, Yielded
from tests.orchestrator.core.bench import Bench, granted, lease, of, orders, report, settle


@pytest.fixture
def bench() -> Bench:
    bench = Bench("n1")
    for job in "abc":
        bench.start(job)
    return bench


def hello(bench: Bench, **contexts: Context) -> list[Command]:
    """Let the agent of n1 come back with a, b and c, their contexts as remembered or as the test says."""
    jobs = (report(job, nodes=("n1",), context=contexts.get(job, bench.context(job))) for job in "abc")
    return bench.node_up("n1", *jobs)


def test_the_holder_is_the_same_and_holds_until_it_yields(bench: Bench) -> None:
    first = lease(bench.acquire("a"))

    bench.restart()
    hello(bench)

    assert lease(bench.acquire("a")) == first
    assert granted(bench.acquire("b")) == []
    assert of(Yielded, bench.yield_("a", first.epoch)) == [Yielded(1)]


def test_the_queue_is_the_same_whoever_comes_back_first(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("c")

    bench.restart()
    hello(bench)
    bench.acquire("c")
    bench.acquire("b")

    assert granted(settle(bench, bench.yield_("a"))) == ["b"]
    assert granted(settle(bench, bench.yield_("b"))) == ["c"]


def test_nobody_is_granted_before_his_caller_is_back(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")
    bench.restart()
    hello(bench)

    assert granted(settle(bench, bench.yield_("a"))) == []
    assert granted(settle(bench, bench.acquire("b"))) == ["b"]


def test_a_waiter_whose_caller_does_not_come_back_loses_its_place_after_the_grace(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")
    bench.acquire("c")
    started = bench.restart()
    hello(bench)
    bench.acquire("c")
    bench.yield_("a")

    assert len(of(WakeMe, started)) == 2
    after = bench.wake(started)

    assert not bench.waits("b")
    assert granted(settle(bench, after)) == ["c"]


def test_saved_contexts_come_back_after_it(bench: Bench) -> None:
    bench.turn("a")
    bench.turn("b")

    bench.restart()
    hello(bench)

    assert orders(bench.acquire("a")) == [("snapshot", "b", "n1"), ("restore", "a", "n1")]


def test_epochs_go_on_where_they_were(bench: Bench) -> None:
    bench.turn("a")
    bench.restart()
    hello(bench)

    assert lease(bench.acquire("a")).epoch == 2


def test_a_yield_whose_answer_was_lost_is_answered_again(bench: Bench) -> None:
    bench.acquire("a")
    bench.yield_("a", 1)

    bench.restart()

    assert of(Yielded, bench.yield_("a", 1)) == [Yielded(0)]
    with pytest.raises(StaleLease):
        bench.yield_("a", 7)


def test_a_snapshot_that_was_under_way_is_waited_for(bench: Bench) -> None:
    bench.turn("a")
    [save] = of(Operate, bench.acquire("b"))

    bench.restart()
    assert bench.context("a") is Context.UNKNOWN
    hello(bench, a=Context.SAVING)
    assert granted(bench.acquire("b")) == []

    assert granted(bench.done(save)) == ["b"]


def test_a_snapshot_that_ended_meanwhile_is_in_the_agents_hello(bench: Bench) -> None:
    bench.turn("a")
    bench.acquire("b")
    bench.restart()
    bench.acquire("b")

    assert granted(hello(bench, a=Context.SAVED)) == ["b"]


def test_an_order_that_never_arrived_is_given_anew(bench: Bench) -> None:
    bench.turn("a")
    [lost] = of(Operate, bench.acquire("b"))
    bench.restart()
    bench.acquire("b")

    [again] = of(Operate, hello(bench, a=Context.RESIDENT))

    assert (again.verb, again.job_id) == (lost.verb, "a")
    assert again.operation != lost.operation
    assert granted(bench.done(again)) == ["b"]


def test_a_restore_under_way_that_loses_the_state_faults_the_job(bench: Bench) -> None:
    bench.turn("a")
    bench.turn("b")
    save, load = of(Operate, bench.acquire("a"))
    bench.done(save)
    bench.restart()
    hello(bench, a=Context.RESTORING)

    bench.fails(load, "driver crashed", context=Context.FAULTED)

    with pytest.raises(JobFaulted, match="driver crashed"):
        bench.acquire("a")


def test_a_result_that_was_overtaken_by_a_later_order_is_not_believed(bench: Bench) -> None:
    bench.turn("a")
    bench.turn("b")
    save, load = of(Operate, bench.acquire("a"))
    bench.done(save)
    bench.restart()
    hello(bench, a=Context.RESTORING)

    bench.done(Operate("1-1", load.verb, "n1", "a", "1"), ok=False, context=Context.SAVED)

    assert bench.context("a") is Context.UNKNOWN
    bench.done(load)
    assert bench.context("a") is Context.RESIDENT


def test_before_the_agent_is_back_only_the_warm_job_is_granted(bench: Bench) -> None:
    bench.turn("a")
    bench.restart()

    assert granted(bench.acquire("b")) == []
    bench.cancel(2)
    assert granted(bench.acquire("a")) == ["a"]


def test_a_job_that_ended_meanwhile_frees_its_devices_when_the_agent_says_so(bench: Bench) -> None:
    bench.acquire("a")
    bench.acquire("b")
    bench.restart()
    bench.acquire("b")

    back = bench.node_up("n1", report("b", nodes=("n1",)), report("c", nodes=("n1",)))

    assert granted(back) == ["b"]
    assert bench.slices() == [("a", SliceState.JOB_ENDED)]


def test_a_fault_is_remembered(bench: Bench) -> None:
    bench.turn("a")
    [save] = of(Operate, bench.acquire("b"))
    bench.fails(save, "driver crashed", context=Context.FAULTED)

    bench.restart()
    hello(bench)

    with pytest.raises(JobFaulted):
        bench.acquire("a")
    assert granted(bench.acquire("b")) == []


def test_the_token_of_a_job_is_known_before_its_agent_is_back(bench: Bench) -> None:
    bench.restart()

    assert bench.core.state.tokens.get("token of a 1") == ("a", "g")
