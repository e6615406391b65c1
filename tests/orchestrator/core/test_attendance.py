"""A lease ends when its holder's processes are gone while the job lives, after a time, not otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_interleave.client.core.states import Attendance, SliceState
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import Command, Note, WakeMe
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.rules import Rules
from tests.orchestrator.core.bench import Bench, of, report, settle

GRACE_S = Rules().gone_grace_s


def says(bench: Bench, attendance: Attendance, node: str = "n1", **devices: tuple[int, ...]) -> list[Command]:
    """Let the agent of *node* say so of job a."""
    places = devices or {"n1": (0,)}
    job = replace(report("a", devices=places[node], nodes=tuple(places)), attendance=attendance)
    return bench.tell(ev.Registered(bench.at, node, job))


@pytest.fixture
def bench() -> Bench:
    """Job a holds, and its process has said so; b waits."""
    bench = Bench()
    for job in "ab":
        bench.start(job)
    says(bench, Attendance.PRESENT)
    for job in "ab":
        bench.acquire(job)
    return bench


def holders(bench: Bench) -> list[str]:
    return [key.job_id for key in bench.core.state.leases]


def test_the_next_is_granted_when_the_holders_processes_are_gone_for_a_while(bench: Bench) -> None:
    commands = says(bench, Attendance.GONE)
    assert holders(bench) == ["a"]

    ended = settle(bench, bench.wake(commands))

    assert bench.at == 100 + GRACE_S
    assert holders(bench) == ["b"]
    assert bench.memory.slices[1].state is SliceState.ABANDONED
    assert [note.event for note in of(Note, ended)] == ["lease.abandoned"]


def test_a_process_that_begins_in_time_keeps_the_lease(bench: Bench) -> None:
    commands = says(bench, Attendance.GONE)
    says(bench, Attendance.PRESENT)

    bench.wake(commands)

    assert holders(bench) == ["a"]


def test_each_absence_has_its_own_time(bench: Bench) -> None:
    first = says(bench, Attendance.GONE)
    says(bench, Attendance.PRESENT)
    bench.at += GRACE_S / 2
    second = says(bench, Attendance.GONE)

    bench.wake(first)
    assert holders(bench) == ["a"]

    bench.wake(second)
    assert holders(bench) == []


def test_a_later_lease_is_not_ended_by_an_earlier_absence(bench: Bench) -> None:
    commands = says(bench, Attendance.GONE)
    bench.cancel(2)
    bench.yield_("a")
    bench.acquire("a")

    bench.wake(commands)

    assert (holders(bench), bench.core.state.epoch) == (["a"], 2)


def test_a_job_whose_processes_never_said_that_they_take_turns_keeps_its_lease(bench: Bench) -> None:
    commands = says(bench, Attendance.UNKNOWN)

    assert not of(WakeMe, commands)


def test_an_agent_that_is_away_may_have_the_process_still(bench: Bench) -> None:
    commands = says(bench, Attendance.GONE)
    bench.node_down("n1")

    bench.wake(commands)
    assert holders(bench) == ["a"]

    gone = replace(report("a"), attendance=Attendance.GONE)
    back = bench.node_up("n1", gone, report("b"))
    settle(bench, bench.wake(back))
    assert holders(bench) == ["b"]


def test_one_process_on_any_node_is_enough() -> None:
    bench, places = Bench(), {"n1": (0,), "n2": (0,)}
    bench.start("a", **places)
    says(bench, Attendance.PRESENT, "n1", **places)
    says(bench, Attendance.PRESENT, "n2", **places)
    bench.acquire("a")

    bench.wake(says(bench, Attendance.GONE, "n1", **places))
    assert holders(bench) == ["a"]

    bench.wake(says(bench, Attendance.GONE, "n2", **places))
    assert holders(bench) == []


def test_a_node_that_comes_back_without_any_ends_the_wait_of_the_others() -> None:
    bench, places = Bench(), {"n1": (0,), "n2": (0,)}
    bench.start("a", **places)
    says(bench, Attendance.PRESENT, "n1", **places)
    bench.acquire("a")
    bench.node_down("n2")
    bench.wake(says(bench, Attendance.GONE, "n1", **places))
    bench.at += GRACE_S
    assert holders(bench) == ["a"]

    bench.wake(bench.node_up("n2", report("a", nodes=tuple(places))))

    assert holders(bench) == []


def test_a_restart_hears_of_it_again(bench: Bench) -> None:
    says(bench, Attendance.GONE)
    bench.restart()

    gone = replace(report("a"), attendance=Attendance.GONE)
    bench.wake(bench.node_up("n1", gone, report("b")))

    assert holders(bench) == []


def test_a_lease_that_a_rule_gives_back_to_who_is_gone_ends_too(bench: Bench) -> None:
    says(bench, Attendance.GONE)
    settle(bench, bench.tell(ev.Revoke(bench.at, "a", "g")))
    assert holders(bench) == ["b"]
    given = settle(bench, bench.yield_("b"))
    assert holders(bench) == ["a"]

    bench.wake(given)

    assert holders(bench) == []


def test_a_site_may_leave_such_leases_alone() -> None:
    bench = Bench()
    bench.core = Core(bench.memory.remembered(), 2, Rules(gone_grace_s=0))
    bench.node_up("n1")
    bench.start("a")
    bench.acquire("a")

    assert not of(WakeMe, says(bench, Attendance.GONE))


def test_a_process_that_is_told_of_the_lease_keeps_it_though_no_agent_has_seen_it_come(bench: Bench) -> None:
    commands = says(bench, Attendance.GONE)
    bench.at += GRACE_S / 2
    bench.acquire("a")

    bench.wake(commands)
    bench.wake(says(bench, Attendance.GONE))
    assert holders(bench) == ["a"]

    says(bench, Attendance.PRESENT)
    bench.wake(says(bench, Attendance.GONE))
    assert holders(bench) == []


def test_a_new_grant_is_not_ended_for_an_absence_that_is_older(bench: Bench) -> None:
    says(bench, Attendance.GONE)
    settle(bench, bench.yield_("a"))
    bench.yield_("b")
    bench.at += 2 * GRACE_S
    settle(bench, bench.acquire("a"))

    bench.wake(says(bench, Attendance.GONE))

    assert holders(bench) == ["a"]
