"""Declared jobs take the times that they declare, and as many batches ahead as they may."""

from __future__ import annotations

import pytest

from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.simulator.program import Acquire, Job, Place, Program, Until, Yield, alone
from slurm_interleave.orchestrator.simulator.traces import jobs_in
from slurm_interleave.orchestrator.simulator.workloads import SAMPLER, TRAINER, Workload, job_of
from slurm_interleave.orchestrator.simulator.world import World

PLACES = {TRAINER: Place(("n1",)), SAMPLER: Place(("n2",))}


@pytest.mark.parametrize(
    ("work", "seconds", "held_s"),
    [
        (Workload("w", 60, 35, 5), 1000, {TRAINER: 400}),
        (Workload("w", 60, 35, 5, two_pools=True), 1000, {TRAINER: 400, SAMPLER: 650}),
        (Workload("w", 60, 35, 5, colocated=True), 1000, {TRAINER: 1000}),
        # A batch takes as long as a step, since it is made while the trainer works on the last one.
        (Workload("w", 60, 35, 5, staleness=8), 1040, {TRAINER: 400}),
    ],
)
def test_a_job_alone_takes_and_holds_what_its_steps_do(
    work: Workload, seconds: float, held_s: dict[str, float]
) -> None:
    single = alone(job_of(work, "w", PLACES, 10))

    assert (single.seconds, single.held_s) == (seconds, held_s)
    assert (work.period_s, work.held_s) == (100, held_s[TRAINER] / 10)


def test_phases_vary_about_what_is_declared() -> None:
    work = Workload("w", 60, 40)

    single = alone(job_of(work, "w", PLACES, 3000, spread=0.3))

    assert single.seconds != 300_000
    assert single.seconds == pytest.approx(300_000, rel=0.02)
    assert single.held_s[TRAINER] == pytest.approx(120_000, rel=0.03)


def holds_once(until: float) -> Job:
    def program(_now: float) -> Program:
        yield Acquire(TRAINER)
        yield Until(until)
        yield Yield(TRAINER)

    return Job("long", {TRAINER: PLACES[TRAINER]}, program)


@pytest.mark.parametrize("staleness", [1, 3, 8])
def test_who_waited_finds_as_many_batches_ready_as_it_may_have_and_the_next_ones_as_they_are_made(
    staleness: int,
) -> None:
    late = job_of(Workload("w", 60, 40, staleness=staleness), "late", PLACES, 20)

    turns = World([holds_once(5000), late], Rules()).run().turns[1:]

    # One more is made while these wait; the first turn makes room for another, which takes 100 s, and so on.
    made = [0.0] * (staleness + 1) + [5000.0 + 100 * n for n in range(1, 20 - staleness)]
    expected = [5000.0]
    for at in made[1:]:
        expected.append(max(at, expected[-1] + 40))
    assert [turn.granted for turn in turns] == pytest.approx(expected)


def test_samplers_and_trainers_of_a_declared_job_have_devices_of_their_own() -> None:
    entry = {"name": "a", "rollout_s": 30, "train_s": 20, "two_pools": True, "count": 2}

    first, second = jobs_in({"jobs": [entry]})

    assert first.pools == second.pools
    assert first.pools[TRAINER] != first.pools[SAMPLER]
