"""Three jobs on the same devices, beside the best that any order of their turns could do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from best_duty import Member, Turn, most_busy
from best_order import calls_of
from pairing import HALF, PLACES, SPREAD, Result, simulated, steps_for

from slurm_interleave.orchestrator.simulator.figures import duty, together
from slurm_interleave.orchestrator.simulator.program import Job
from slurm_interleave.orchestrator.simulator.workloads import PUBLISHED, TRAINER, Workload, job_of

GOAL = 0.95


def three(seconds: float, compared_s: float) -> Result:
    """All sets of three that need the trainer's devices for as long as there is time.

    Those that stay under the goal are played again for *compared_s*, beside the best order.
    """
    duties, over_best, best = [], [], []
    for works in _sets():
        turns = simulated(_jobs(works, seconds)).turns
        duties.append(duty(turns, together(turns, warm_up=0.1)))
        if duties[-1] < GOAL:
            jobs = _jobs(works, 2 * compared_s)
            best.append(
                most_busy(
                    [_member(*one) for one in zip(jobs, works, strict=True)],
                    compared_s,
                    HALF.snapshot_s + HALF.restore_s,
                )
            )
            over_best.append(duty(simulated(jobs).turns, (0.0, compared_s)) / best[-1])
    return {
        "three_job_duty": sum(duties) / len(duties),
        "three_job_least": min(duties),
        "three_job_sets": len(duties),
        "three_job_reaching_95": sum(value >= GOAL for value in duties) / len(duties),
        "three_job_over_best": sum(over_best) / len(over_best),
        "three_job_least_over_best": min(over_best),
        "three_job_best_reaching_95": sum(value >= GOAL for value in best) / len(best),
    }


def _sets() -> Iterator[tuple[Workload, ...]]:
    usable = [work for work in PUBLISHED if not work.colocated and not work.two_pools]
    for works in itertools.combinations_with_replacement(usable, 3):
        if sum(work.held_s / work.period_s for work in works) >= 1:
            yield works


def _jobs(works: Sequence[Workload], seconds: float) -> list[Job]:
    return [
        job_of(w, f"{n}-{w.name}", PLACES, steps_for(w, seconds), cost=HALF, spread=SPREAD)
        for n, w in enumerate(works)
    ]


def _member(job: Job, work: Workload) -> Member:
    calls = calls_of(job, [TRAINER])
    pairs = list(zip(calls[::2], calls[1::2], strict=True))
    if work.staleness == 0:
        return Member([Turn(asks.after_s, yields.after_s) for asks, yields in pairs], stocked=False)
    # A batch is made while the last one is trained on: from one to the next is that turn, and the wait.
    before = [0.0, *(yields.after_s for _, yields in pairs)]
    turns = [
        Turn(held + asks.after_s, yields.after_s) for held, (asks, yields) in zip(before, pairs, strict=False)
    ]
    return Member(turns, stocked=True)
