"""One process of a heterogeneous job takes turns for its other components too."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_interleave.client.core.errors import Deadlock, NotRegistered, WrongState
from slurm_interleave.client.core.states import Attendance
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.turns import Turns

GRACE_S = Rules().gone_grace_s
COMPONENTS = {"10": "10", "11": "10", "20": "20", "21": "20"}


def two_jobs(*, known: bool = True, rules: Rules | None = None, **second: Any) -> Turns:
    """Jobs 10 and 20, of a trainer and a sampler each: 11 and 21 are their second components."""
    bench = Turns(rules)
    for job in ("10", "20"):
        bench.join(job, "trainer", (0,), uid=7)
        bench.join(str(int(job) + 1), "sampler", (1,), **{"uid": 7, **second})
    if known:
        bench.handle(ev.Components(bench.now, COMPONENTS))
    return bench


def test_both_groups_are_granted_to_one_driver_at_once_or_none_is() -> None:
    bench = two_jobs()
    bench.acquire("21", "sampler")

    bench.acquire("10", "trainer", "sampler")
    assert bench.holders() == {("21", "sampler")}

    bench.yield_("21", "sampler")
    bench.settle()
    assert bench.holders() == {("10", "trainer"), ("11", "sampler")}


def test_the_driver_yields_each_for_itself_to_the_other_driver_that_waits() -> None:
    bench = two_jobs()
    bench.acquire("10", "trainer", "sampler")
    bench.acquire("20", "sampler")

    bench.yield_("10", "sampler")
    bench.settle()
    assert bench.holders() == {("10", "trainer"), ("21", "sampler")}

    bench.yield_("10", "trainer")
    bench.acquire("20", "trainer")
    bench.settle()
    assert bench.holders() == {("20", "trainer"), ("21", "sampler")}


def test_the_last_component_may_drive_as_well_as_the_first() -> None:
    bench = two_jobs()

    bench.acquire("11", "trainer", "sampler")

    assert bench.holders() == {("10", "trainer"), ("11", "sampler")}


@pytest.mark.parametrize(
    ("bench", "why"),
    [
        pytest.param(two_jobs(known=False), "Slurm has not said so", id="nothing known of them"),
        pytest.param(two_jobs(uid=8), "it is another user's", id="another user"),
    ],
)
def test_no_job_is_driven_that_is_not_of_the_same_heterogeneous_job_and_user(bench: Turns, why: str) -> None:
    for call in (bench.acquire, bench.yield_):
        with pytest.raises(NotRegistered, match="job 10 is not registered in group sampler"):
            call("10", "sampler")
    assert bench.holders() == set(), why


def test_another_job_of_the_same_user_is_never_driven() -> None:
    bench = two_jobs()
    bench.join("30", "rewards", (2,), uid=7)
    bench.join("41", "judges", (3,), uid=7)
    bench.handle(ev.Components(bench.now, {"10": "10", "11": "10", "40": "40", "41": "40"}))

    for group in ("rewards", "judges"):
        with pytest.raises(NotRegistered):
            bench.acquire("10", group)
    with pytest.raises(NotRegistered):
        bench.acquire("30", "sampler")


def test_where_two_components_are_in_the_group_neither_is_taken_by_chance() -> None:
    bench = two_jobs()
    bench.join("12", "sampler", (2,), uid=7)
    bench.handle(ev.Components(bench.now, dict.fromkeys(("10", "11", "12"), "10")))

    with pytest.raises(WrongState, match="components 11, 12"):
        bench.acquire("10", "trainer", "sampler")

    bench.acquire("12", "sampler")
    assert bench.holders() == {("12", "sampler")}  # each is itself


def test_drivers_that_would_wait_for_each_other_are_told_so() -> None:
    bench = two_jobs()
    bench.acquire("10", "trainer")
    bench.acquire("20", "sampler")
    bench.acquire("10", "sampler")

    with pytest.raises(Deadlock):
        bench.acquire("20", "trainer")


def test_components_that_each_ask_for_themselves_wait_without_a_deadlock() -> None:
    bench = two_jobs()
    bench.acquire("10", "trainer")
    bench.acquire("21", "sampler")
    bench.acquire("11", "sampler")
    bench.acquire("20", "trainer")

    bench.yield_("10", "trainer")
    bench.yield_("21", "sampler")
    bench.settle()

    assert bench.holders() == {("20", "trainer"), ("11", "sampler")}


def test_an_acquire_that_is_given_up_ends_what_it_was_granted_of_all_components() -> None:
    bench = two_jobs()
    bench.call("10", "name", "trainer", "sampler")

    bench.handle(ev.Abandon(bench.now, "10", "name"))

    assert bench.holders() == set()


def test_a_component_that_is_over_ends_the_wait_of_its_driver() -> None:
    bench = two_jobs()
    bench.acquire("21", "sampler")
    call = bench.acquire("10", "trainer", "sampler")

    bench.handle(ev.PartOver(bench.now, "n1", "11", "11-sampler"))

    assert "11" in str(bench.refused[call])
    bench.acquire("10", "trainer")
    assert bench.holders() == {("21", "sampler"), ("10", "trainer")}


@pytest.mark.parametrize("stopped", ["10", "11"])
def test_who_waits_for_a_stopped_component_or_driver_holds_up_nobody(stopped: str) -> None:
    bench = two_jobs()
    bench.acquire("20", "trainer", "sampler")
    bench.acquire("10", "sampler")
    bench.acquire("21", "sampler")
    bench.handle(ev.Suspended(bench.now, stopped, True))
    bench.join("31", "sampler", (1,))
    bench.acquire("31", "sampler")
    assert bench.core.turns.place(Key("31", "sampler"), bench.now)[0] == 1, "behind the holder"

    bench.yield_("20", "sampler")
    bench.settle()

    assert bench.holders() == {("20", "trainer"), ("31", "sampler")}


@pytest.mark.parametrize("asker", ["10", "11"])
def test_who_is_suspended_over_its_limit_loses_what_it_drives_as_what_it_has(asker: str) -> None:
    bench = two_jobs(rules=Rules(max_hold_s=60, yield_grace_s=1000, force=True))
    bench.acquire(asker, "sampler")
    bench.acquire("21", "sampler")
    bench.wake(bench.now + 61)
    assert bench.holders() == {("11", "sampler")}, "it was asked"

    bench.handle(ev.Suspended(bench.now, asker, True))
    bench.settle()

    assert bench.holders() == {("21", "sampler")}


@pytest.mark.parametrize("asker", ["10", "11"])
def test_who_waits_is_told_that_the_one_who_could_yield_is_suspended(asker: str) -> None:
    bench = two_jobs()
    bench.acquire(asker, "sampler")
    bench.acquire("21", "sampler")

    bench.handle(ev.Suspended(bench.now, asker, True))

    place = bench.core.turns.place(Key("21", "sampler"), bench.now)
    assert place == (1, f"holder {asker} is suspended in Slurm")


@pytest.mark.parametrize(("asker", "told"), [("10", []), ("11", ["10"])])
def test_a_holder_is_told_of_all_who_wait_but_itself(asker: str, told: list[str]) -> None:
    bench = two_jobs()
    bench.join("10", "rewards", (1,), uid=7)
    bench.acquire("10", "rewards")

    bench.acquire(asker, "sampler")

    assert [notice.key.job_id for notice in bench.notices] == told


def attends(bench: Turns, job: str, group: str, attendance: Attendance) -> None:
    device = (0,) if group == "trainer" else (1,)
    bench.join(job, group, device, uid=7, attendance=attendance)


@pytest.mark.parametrize("first", [("sampler",), ("trainer", "sampler")])
def test_what_a_driver_holds_ends_when_its_processes_are_gone(first: tuple[str, ...]) -> None:
    bench = two_jobs()
    attends(bench, "10", "trainer", Attendance.PRESENT)
    bench.acquire("10", *first)
    bench.acquire("20", *first)

    attends(bench, "11", "sampler", Attendance.GONE)  # it was never there for these turns
    bench.wake(bench.now + 2 * GRACE_S)
    assert ("11", "sampler") in bench.holders()

    attends(bench, "10", "trainer", Attendance.GONE)
    bench.wake(bench.now + 2 * GRACE_S)
    bench.settle()
    assert {job for job, _ in bench.holders()} <= {"20", "21"}
    assert ("21", "sampler") in bench.holders()
