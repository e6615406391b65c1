"""What a driver has of other components of its heterogeneous job: after a restart, and when it is over."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from slurm_interleave.client.core.errors import Deadlock, JobEnded, NotRegistered
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import Command, Grant, Refuse, Yielded
from slurm_interleave.sql.rows import Key
from tests.orchestrator.core.bench import Bench, of, report, settle

COMPONENTS = {"10": "10", "11": "10", "20": "20", "21": "20"}
CALLS = itertools.count(1)


def ask(bench: Bench, job: str, *groups: str) -> list[Command]:
    call = ev.CallId(next(CALLS))
    return bench.tell(ev.Acquire(bench.at, job, groups[0], "", call, groups[1:], name=f"{job}-{groups}"))


@pytest.fixture
def bench() -> Bench:
    """The same two jobs, whose orchestrator can be killed."""
    bench = Bench()
    for job in ("10", "20"):
        bench.start(job, "trainer", n1=(0,))
        bench.start(str(int(job) + 1), "sampler", n2=(1,))
    bench.tell(ev.Components(bench.at, COMPONENTS))
    return bench


def restart(bench: Bench, *, slurm_answers: bool = True) -> list[Command]:
    """Kill it, and let the agents, and Slurm maybe, say again what they know."""
    commands = bench.restart()
    bench.node_up("n1", *(report(job, "trainer", devices=(0,), nodes=("n1",)) for job in ("10", "20")))
    bench.node_up("n2", *(report(job, "sampler", devices=(1,), nodes=("n2",)) for job in ("11", "21")))
    if slurm_answers:
        bench.tell(ev.Components(bench.at, COMPONENTS))
    return commands


@pytest.mark.parametrize("groups", [("sampler",), ("trainer", "sampler")])
def test_after_a_restart_a_driver_has_its_leases_before_slurm_has_answered(
    bench: Bench, groups: tuple[str, ...]
) -> None:
    ask(bench, "10", *groups)
    restart(bench, slurm_answers=False)

    assert of(Grant, ask(bench, "10", *groups))
    assert of(Yielded, bench.yield_("10", group="sampler"))
    assert Key("11", "sampler") not in bench.core.state.leases


@pytest.mark.parametrize("groups", [("sampler",), ("trainer", "sampler")])
@pytest.mark.parametrize("comes_back", [True, False])
def test_after_a_restart_a_driver_has_its_place_before_slurm_has_answered(
    bench: Bench, groups: tuple[str, ...], comes_back: bool
) -> None:
    ask(bench, "20", "sampler")
    ask(bench, "10", *groups)
    commands = restart(bench, slurm_answers=False)

    if comes_back:
        ask(bench, "10", *groups)
    bench.wake(commands)

    assert (Key("11", "sampler") in bench.core.state.claims) == comes_back


def test_after_a_restart_what_a_driver_asks_for_first_is_not_known_until_slurm_has_answered(
    bench: Bench,
) -> None:
    restart(bench, slurm_answers=False)
    with pytest.raises(NotRegistered):  # after which a client asks again for a while
        ask(bench, "10", "sampler")

    bench.tell(ev.Components(bench.at, COMPONENTS))
    ask(bench, "10", "sampler")
    assert Key("11", "sampler") in bench.core.state.leases


GROUPS = [("trainer",), ("sampler",), ("trainer", "sampler")]


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("end", [Bench.part_over, Bench.job_over])
def test_what_a_job_holds_and_drives_ends_with_it(bench: Bench, end: Any, groups: tuple[str, ...]) -> None:
    ask(bench, "10", *groups)
    ask(bench, "20", *groups)
    held = dict(bench.core.state.leases)

    settle(bench, end(bench, "10"))

    assert sorted(bench.slices()) == [(key.job_id, SliceState.JOB_ENDED) for key in sorted(held)]
    assert {lease.asker for lease in bench.core.state.leases.values()} == {"20"}
    assert not bench.core.state.waiters


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("end", [Bench.part_over, Bench.job_over])
def test_what_a_job_waits_for_is_refused_when_it_is_over(
    bench: Bench, end: Any, groups: tuple[str, ...]
) -> None:
    ask(bench, "20", *groups)
    ask(bench, "10", *groups)

    [refused] = of(Refuse, end(bench, "10"))

    assert isinstance(refused.error, JobEnded)
    assert not bench.core.state.waiters
    assert {lease.asker for lease in bench.core.state.leases.values()} == {"20"}


def test_a_driver_of_which_one_member_lives_keeps_what_it_drives(bench: Bench) -> None:
    bench.start("10", "rewards", "2", n1=(2,))
    ask(bench, "10", "sampler")

    bench.part_over("10")
    assert bench.holds("11", "sampler")

    bench.part_over("10", attempt="2")
    assert not bench.holds("11", "sampler")


def test_a_driver_waits_on_for_both_groups_after_a_restart(bench: Bench) -> None:
    ask(bench, "20", "sampler")
    ask(bench, "10", "trainer", "sampler")

    restart(bench)
    ask(bench, "10", "trainer", "sampler")
    assert list(bench.core.state.leases) == [Key("21", "sampler")]

    settle(bench, bench.yield_("20", group="sampler"))
    assert set(bench.core.state.leases) == {Key("10", "trainer"), Key("11", "sampler")}


@pytest.mark.parametrize("before", [2, 3], ids=["the lease", "the lease and the wait"])
def test_a_deadlock_of_drivers_is_seen_after_a_restart_too(bench: Bench, before: int) -> None:
    calls = [("20", "sampler"), ("10", "trainer"), ("10", "sampler")]
    for call in calls[:before]:
        ask(bench, *call)

    restart(bench)
    ask(bench, "10", "sampler")

    with pytest.raises(Deadlock):
        ask(bench, "20", "trainer")


def test_a_lease_is_kept_by_who_was_told_of_it_last(bench: Bench) -> None:
    ask(bench, "20", "sampler")
    ask(bench, "21", "sampler")
    ask(bench, "10", "trainer")
    ask(bench, "10", "sampler")

    ask(bench, "20", "trainer")  # for now 21's own process is to yield

    assert Key("20", "trainer") in bench.core.state.waiters
