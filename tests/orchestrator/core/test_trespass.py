"""Processes that use a device although their job does not hold it."""

from __future__ import annotations

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import Command, Note, Operate, Stop
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.bench import Bench, granted, of, orders, report, settle

A = Key("a", "g")


@pytest.fixture
def bench() -> Bench:
    bench = Bench("n1")
    bench.start("a")
    bench.start("b")
    return bench


def use(job: str = "a", *, device: int = 0, pid: int = 7, working: bool = True) -> ev.Use:
    return ev.Use(device, pid, job, working)


def sees(bench: Bench, *uses: ev.Use) -> list[Command]:
    bench.at += 5
    return bench.tell(ev.Used(bench.at, "n1", uses))


def sees_twice(bench: Bench, *uses: ev.Use) -> list[Command]:
    return sees(bench, *uses) + sees(bench, *uses)


def policy(bench: Bench, policy: str) -> None:
    jobs = tuple(report(job, nodes=("n1",)) for job in "ab")
    bench.tell(ev.NodeUp(bench.at, "n1", jobs, trespass=policy))


def seen(bench: Bench) -> list[tuple[int, int, str, str]]:
    found = bench.core.trespasses.on("n1")
    return [(one.device, one.pid, one.key.job_id if one.key else "", one.reason) for one in found]


def test_work_without_a_lease_is_seen_at_the_second_look(bench: Bench) -> None:
    first = sees(bench, use())
    second = sees(bench, use())
    third = sees(bench, use())

    assert [note.event for note in of(Note, first)] == []
    [note] = of(Note, second)
    assert (note.event, note.key) == ("trespass.seen", A)
    assert note.text == "process 7 on device n1/0: it works without a lease"
    assert of(Note, third) == []
    assert seen(bench) == [(0, 7, "a", "it works without a lease")]
    assert bench.core.trespasses.counts == {"n1": 1}


def test_when_it_ends_it_is_not_shown_any_more_but_counted(bench: Bench) -> None:
    sees_twice(bench, use())

    sees(bench)

    assert seen(bench) == []
    assert bench.core.trespasses.counts == {"n1": 1}


def test_the_holder_may_work_and_a_warm_job_may_keep_its_memory(bench: Bench) -> None:
    bench.acquire("a")
    sees_twice(bench, use())
    bench.yield_("a")
    sees_twice(bench, use(working=False))

    assert seen(bench) == []


def test_work_seen_just_before_each_of_two_yields_is_no_trespass(bench: Bench) -> None:
    for _ in range(3):
        bench.acquire("a")
        bench.yield_("a")
        sees(bench, use())

    assert seen(bench) == []


def test_memory_of_a_job_that_never_acquired_is_a_trespass(bench: Bench) -> None:
    sees(bench, use(working=False))
    sees(bench, use(working=False))

    assert seen(bench) == [(0, 7, "a", "it has memory there without a lease")]


def test_memory_that_is_there_is_moved_away_before_others_come(bench: Bench) -> None:
    sees_twice(bench, use())

    commands = bench.acquire("b")

    assert orders(commands) == [("snapshot", "a", "n1")]
    assert granted(settle(bench, commands)) == ["b"]


def test_a_job_on_a_device_that_is_not_its_own_trespasses_even_with_a_lease(bench: Bench) -> None:
    bench.acquire("a")

    sees_twice(bench, use(device=1))

    assert seen(bench) == [(1, 7, "a", "the device is not one of its job")]


@pytest.mark.parametrize("asked", ["warn", "save", "kill"])
def test_a_process_of_no_interleaved_job_is_seen_and_never_touched(bench: Bench, asked: str) -> None:
    policy(bench, asked)

    commands = sees_twice(bench, use(""), use("c", pid=8))

    assert seen(bench) == [
        (0, 7, "", "it belongs to no interleaved job"),
        (0, 8, "", "it belongs to no interleaved job"),
    ]
    assert of(Stop, commands) == []
    assert orders(commands) == []


def test_by_policy_a_trespasser_is_saved(bench: Bench) -> None:
    policy(bench, "save")

    commands = sees_twice(bench, use())

    assert orders(commands) == [("snapshot", "a", "n1")]
    settle(bench, commands)
    assert bench.context("a") is Context.SAVED
    assert granted(settle(bench, bench.acquire("a"))) == ["a"]


def test_a_holder_keeps_its_lease_while_a_trespasser_is_saved_under_it(bench: Bench) -> None:
    policy(bench, "save")
    bench.acquire("b")

    settle(bench, sees_twice(bench, use(), use("b", pid=8)))

    assert bench.holds("b")
    assert (bench.context("a"), bench.context("b")) == (Context.SAVED, Context.RESIDENT)


def test_by_policy_it_is_killed_and_again_while_it_is_there(bench: Bench) -> None:
    policy(bench, "kill")

    commands = sees_twice(bench, use()) + sees(bench, use())

    assert of(Stop, commands) == [Stop("n1", "a", "1", 7)] * 2


def test_a_faulted_job_is_not_saved_again_and_again(bench: Bench) -> None:
    policy(bench, "save")
    bench.core.state.fault(A, "cannot be saved")

    assert orders(sees_twice(bench, use())) == []


def test_a_context_that_is_being_moved_is_let_alone(bench: Bench) -> None:
    bench.turn("a")
    bench.acquire("b")

    sees_twice(bench, use(working=False))

    assert seen(bench) == []


def test_nothing_is_shown_of_a_node_whose_agent_is_away(bench: Bench) -> None:
    sees_twice(bench, use())

    bench.node_down("n1")

    assert seen(bench) == []


def test_a_snapshot_that_finds_nothing_of_a_trespasser_is_not_repeated(bench: Bench) -> None:
    policy(bench, "save")
    [order] = of(Operate, sees_twice(bench, use()))
    bench.done(order, context=Context.NONE)

    assert orders(sees_twice(bench, use())) == []
    assert len(seen(bench)) == 1
