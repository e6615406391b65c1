"""Histories of the simulator keep what the core promises, and no schedule does better than the bound."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import Deadlock
from slurm_interleave.orchestrator.core.policy import POLICIES
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.simulator.figures import figures
from slurm_interleave.orchestrator.simulator.program import Acquire, Cost, Job, Place, Program, Until, alone
from slurm_interleave.orchestrator.simulator.workloads import SAMPLER, TRAINER, Workload, job_of
from slurm_interleave.orchestrator.simulator.world import World

PLACES = {TRAINER: Place(("n1", "n2"), (0, 1)), SAMPLER: Place(("n3",))}
seconds = st.floats(1, 500)
workloads = st.builds(
    Workload,
    st.just("w"),
    seconds,
    seconds,
    st.floats(0, 5),
    staleness=st.sampled_from((0, 0, 1, 8)),
    two_pools=st.booleans(),
    colocated=st.just(False),
).filter(lambda work: not (work.staleness and work.two_pools))


def jobs_of(works: list[Workload], cost: Cost, spread: float = 0.1) -> list[Job]:
    return [
        job_of(work, f"job-{number}", PLACES, 8, cost=cost, start_s=number * 3.0, spread=spread)
        for number, work in enumerate(works)
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(workloads, min_size=1, max_size=4),
    st.sampled_from(sorted(POLICIES)),
    st.builds(Cost, st.floats(0, 30), st.floats(0, 30)),
)
def test_turns_of_a_pool_never_overlap_and_no_job_is_faster_than_alone(
    works: list[Workload], policy: str, cost: Cost
) -> None:
    jobs = jobs_of(works, cost)

    history = World(jobs, Rules(policy=policy)).run()

    for pool in PLACES:
        turns = sorted((t for t in history.turns if t.pool == pool), key=lambda t: t.granted)
        assert all(before.yielded <= after.granted + 1e-6 for before, after in pairwise(turns))
    made = figures(jobs, history)
    assert all(slowdown > 1 - 1e-6 for slowdown in made.slowdown.values())
    assert made.makespan_s >= made.bound_s - 1e-3


def test_the_same_jobs_and_rules_give_the_same_history() -> None:
    def once() -> object:
        jobs = jobs_of([Workload("a", 30, 20), Workload("b", 17, 29, staleness=2)], Cost(3, 2))
        return World(jobs, Rules(policy="learned")).run()

    assert once() == once()


def test_a_switch_takes_the_snapshot_of_the_last_holder_and_the_restore_of_the_next() -> None:
    a = job_of(Workload("a", 1, 10), "a", PLACES, 2, cost=Cost(5, 2))
    b = job_of(Workload("b", 2, 10), "b", PLACES, 1, cost=Cost(7, 3))

    turns = World([a, b], Rules()).run().turns

    assert [(t.job, t.granted) for t in turns] == [("a", 1), ("b", 11 + 5), ("a", 26 + 7 + 2)]
    assert [t.switched for t in turns] == [False, True, True]


def test_a_job_that_ends_without_a_yield_leaves_its_devices_to_the_next() -> None:
    def program(_now: float) -> Program:
        yield Acquire(TRAINER)

    jobs = [Job(name, PLACES, program) for name in ("a", "b")]

    assert set(World(jobs, Rules()).run().finished) == {"a", "b"}


def test_jobs_that_would_wait_for_each_other_for_ever_end_the_simulation() -> None:
    def crossed(first: str, second: str) -> Program:
        now = yield Acquire(first)
        yield Until(now + 10)
        yield Acquire(second)

    orders = {"a": (TRAINER, SAMPLER), "b": (SAMPLER, TRAINER)}
    jobs = [Job(name, PLACES, lambda _now, order=order: crossed(*order)) for name, order in orders.items()]

    with pytest.raises(Deadlock, match=r"job b would wait for ever: .* held by job a"):
        World(jobs, Rules()).run()


def test_alone_a_job_neither_waits_nor_moves() -> None:
    work = Workload("a", 30, 20, 1)
    job = job_of(work, "a", PLACES, 10, cost=Cost(9, 9))

    single = alone(job)

    assert single.seconds == pytest.approx(10 * work.period_s)
    assert single.share(TRAINER) == pytest.approx(work.held_s / work.period_s)
