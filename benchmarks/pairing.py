"""Turns and pairs beside what is possible, in simulated time: see README.md."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from best_order import shortest_s

from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.pairing.choice import choose
from slurm_interleave.orchestrator.pairing.profile import Profile
from slurm_interleave.orchestrator.pairing.rating import Candidate, PairingRules, Rater, Verdict
from slurm_interleave.orchestrator.simulator.figures import duty, figures, together
from slurm_interleave.orchestrator.simulator.program import Cost, Job, Place
from slurm_interleave.orchestrator.simulator.records import batches, holds_of, jobs_of
from slurm_interleave.orchestrator.simulator.workloads import (
    MIXED,
    PUBLISHED,
    SAMPLER,
    TRAINER,
    Workload,
    job_of,
)
from slurm_interleave.orchestrator.simulator.world import History, Turn, World

DATA = Path(__file__).parents[2] / "shared" / "data"
PLACES = {TRAINER: Place(("n1",)), SAMPLER: Place(("n2",))}
SECOND = Cost(1.0, 1.0)
HALF = Cost(0.5, 0.5)
SPREAD = 0.05
POLICY = "learned"
# In place of the records, where they are not at hand: jobs with the same means.
LIKE_SYNC = Workload("sync", 405, 438, 5.6, two_pools=True)
LIKE_ASYNC = (Workload("a", 185, 200, staleness=8), Workload("b", 310, 303, staleness=8))
Result = dict[str, Any]
GOALS: dict[str, tuple[str, float]] = {
    "sync_over_bound": ("at most", 1.01),
    "sync_makespan_s": ("at most", 12266),
    "async_duty": ("at least", 0.88),
    "async_fast_duty": ("at least", 0.98),
    "mixed_duty_over_bound": ("at least", 0.97),
    "pairing_saved_over_best": ("at least", 0.95),
    "pairing_within_slowdown": ("at least", 0.99),
    "three_job_duty": ("at least", 0.95),
    "three_job_over_best": ("at least", 0.95),
    "pairing_1000_cpu_s": ("at most", 1.0),
    "pairing_1000_distinct_cpu_s": ("at most", 1.0),
    "scale_over_quarter": ("at most", 4.71),
    "simulated_over_real": ("within", 0.03),
}


def simulated(jobs: Sequence[Job], policy: str = POLICY) -> History:
    return World(jobs, Rules(policy=policy)).run()


def steps_for(work: Workload, seconds: float) -> int:
    return max(3, int(seconds / work.period_s))


def sync(data: Path) -> Result:
    path = data / "verl-sync-2xH100.json"
    if path.exists():
        jobs = jobs_of(holds_of(json.loads(path.read_text())))
    else:
        cost = Cost(15, 5)
        jobs = [job_of(LIKE_SYNC, n, PLACES, 10, cost=cost, spread=SPREAD) for n in ("A", "B")]
    bound = shortest_s(*jobs)
    made = figures(jobs, simulated(jobs)).makespan_s
    return {
        "sync_makespan_s": made,
        "sync_bound_s": bound,
        "sync_over_bound": made / bound,
        "sync_fifo_s": figures(jobs, simulated(jobs, "fifo")).makespan_s,
    }


def asynchronous(data: Path) -> Result:
    path = data / "verl-async-3xH100.json"
    if not path.exists():
        jobs = [job_of(w, w.name, PLACES, 60, cost=Cost(21, 9), spread=SPREAD) for w in LIKE_ASYNC]
        fast = [job_of(w, w.name, PLACES, 60, cost=SECOND, spread=SPREAD) for w in LIKE_ASYNC]
        begin = 3600.0
    else:
        holds = holds_of(json.loads(path.read_text()))
        jobs, fast = (jobs_of(holds, asynchronous=True, cost=cost) for cost in (None, SECOND))
        begin = _supplied(holds)
    found: Result = {"async_steady_from_s": begin}
    for key, own in (("async", jobs), ("async_fast", fast)):
        turns = simulated(own).turns
        window = (begin, together(turns)[1])
        found[f"{key}_duty"] = duty(turns, window)
        found[f"{key}_early_duty"] = duty(turns, (_first_step(turns), window[1]))
        found[f"{key}_fifo_duty"] = duty(fifo := simulated(own, "fifo").turns, (begin, together(fifo)[1]))
    if path.exists():
        end = min(max(h.yielded for h in holds if h.job == name) for name in {h.job for h in holds})
        first = min(h.asked for h in holds)
        span = (begin, end - first)
        held = [max(0.0, min(h.yielded - first, span[1]) - max(h.granted - first, span[0])) for h in holds]
        found["async_recorded_duty"] = sum(held) / (span[1] - span[0])
    return found


def _first_step(turns: Sequence[Turn]) -> float:
    """Return when the first step began that is no warming up."""
    usual = statistics.median(turn.yielded - turn.granted for turn in turns)
    return min(turn.granted for turn in turns if turn.yielded - turn.granted > usual / 2)


def _supplied(holds: Sequence[Any]) -> float:
    """Return from when on no turn waited for its batch alone: the last batch whose time the record tells.

    Before that, turns can be no earlier than recorded, whatever the moves cost.
    """
    first = min(hold.asked for hold in holds)
    known = [
        max(at for hold, at in zip(own, batches(own), strict=True) if hold.asked == at)
        for own in ([h for h in holds if h.job == name] for name in sorted({h.job for h in holds}))
    ]
    return float(min(known) - first)


def mixed() -> Result:
    jobs = [job_of(w, w.name, PLACES, steps_for(w, 100_000), cost=HALF, spread=SPREAD) for w in MIXED]
    bound = min(1.0, sum(work.held_s / work.period_s for work in MIXED))
    found = {}
    for key, policy in (("mixed_duty", POLICY), ("mixed_fifo_duty", "fifo")):
        turns = simulated(jobs, policy).turns
        found[key] = duty(turns, together(turns, warm_up=0.1))
    return {**found, "mixed_duty_over_bound": found["mixed_duty"] / bound}


def candidates(count: int, dice: random.Random) -> list[tuple[Candidate, Workload]]:
    found = []
    for number in range(count):
        work = dice.choice(PUBLISHED)
        cost, devices = dice.choice((HALF, Cost(6, 3))), dice.choice((4, 8))
        profile = Profile(
            f"{work.name}-{cost.snapshot_s}", work.period_s, work.held_s, SPREAD, work.staleness > 0,
            cost.snapshot_s, cost.restore_s, 49 * 2**30, 1, devices,
        )  # fmt: skip
        hours = dice.uniform(2, 24)
        found.append((Candidate(str(number), profile, hours, "H100", host_bytes=200 * 2**30), work))
    return found


def pairing(count: int, subsets: int) -> Result:
    from pairing_best import most_saved

    dice = random.Random(8)  # noqa: S311 - it decides no secret
    made = candidates(count, dice)
    works = {job.job_id: work for job, work in made}
    jobs = [job for job, _ in made]
    began = time.process_time()
    groups = choose(jobs)
    took = time.process_time() - began
    rater, ours, best = Rater(), 0.0, 0.0
    for _ in range(subsets):
        part = dice.sample(jobs, 40)
        ours += sum(group.saved for group in choose(part))
        best += sum(most_saved(same, rater) for same in _alike(part))
    whole = sum(most_saved(same, rater) for same in _alike(jobs))
    saved = sum(group.saved for group in groups)
    slow = [ratio for group in groups for ratio in _slowdowns(group, works)]
    thousand = [job for job, _ in candidates(1000, dice)]
    return {
        "pairing_saved_over_best": min(saved / whole, ours / best),
        "pairing_saved_over_best_whole": saved / whole,
        "pairing_within_slowdown": sum(ratio <= 1 + PairingRules().epsilon for ratio in slow) / len(slow),
        "pairing_saved_device_hours": saved,
        "pairing_groups": len(groups),
        "pairing_cpu_s": took,
        "pairing_1000_cpu_s": _choosing_s(thousand),
        "pairing_1000_distinct_cpu_s": _choosing_s(distinct(thousand, dice)),
    }


def distinct(jobs: Sequence[Candidate], dice: random.Random) -> list[Candidate]:
    """Return *jobs* with a workload each, whose times are within 10 % of what they were."""
    found = []
    for job in jobs:
        period_s = job.profile.period_s * dice.uniform(0.9, 1.1)
        held_s = min(period_s, job.profile.held_s * dice.uniform(0.9, 1.1))
        own = replace(job.profile, name=f"w{job.job_id}", period_s=period_s, held_s=held_s)
        found.append(replace(job, profile=own))
    return found


def _choosing_s(jobs: Sequence[Candidate]) -> float:
    began = time.process_time()
    choose(jobs)
    return time.process_time() - began


def _alike(jobs: Sequence[Candidate]) -> list[list[Candidate]]:
    sizes = sorted({job.profile.devices for job in jobs})
    return [[job for job in jobs if job.profile.devices == size] for size in sizes]


def _slowdowns(group: Verdict, works: dict[str, Workload]) -> list[float]:
    """Run a group in the simulator, where its members have begun at any time."""
    dice = random.Random(group.members[0].job_id)  # noqa: S311
    jobs = []
    for member in group.members:
        work, profile = works[member.job_id], member.profile
        cost, start = Cost(profile.snapshot_s, profile.restore_s), dice.uniform(0, work.period_s)
        steps = steps_for(work, 40_000)
        jobs.append(job_of(work, member.job_id, PLACES, steps, cost=cost, start_s=start, spread=SPREAD))
    return list(figures(jobs, simulated(jobs)).slowdown.values())


def scale(jobs: int, steps: int) -> Result:
    """Pairs on 20 devices of 2 nodes each; how the time grows with their number."""
    taken = {}
    for count in (jobs // 4, jobs):
        made = []
        for pair in range(count // 2):
            place = {TRAINER: Place((f"n{2 * pair}", f"n{2 * pair + 1}"), tuple(range(10)))}
            made += [
                job_of(PUBLISHED[0], f"{pair}-{m}", place, steps, cost=HALF, start_s=m * 99.0, spread=SPREAD)
                for m in (0, 1)
            ]
        began = time.process_time()
        simulated(made)
        taken[count] = time.process_time() - began
    return {
        "scale_jobs": jobs,
        "scale_devices": jobs * 10,
        "scale_turns": jobs * steps,
        "scale_cpu_s": taken[jobs],
        "scale_over_quarter": taken[jobs] / taken[jobs // 4],
    }


def _met(value: float, how: str, goal: float) -> bool:
    if how == "within":
        return abs(value - 1) <= goal
    return value <= goal if how == "at most" else value >= goal


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--quick", action="store_true", help="smaller, to see that all of it works")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the recorded runs")
    parser.add_argument("--scale", action="store_true", help="10,000 jobs on 100,000 devices too: minutes")
    chosen = parser.parse_args(arguments)
    from pairing_real import compared
    from pairing_three import three

    cases: list[Callable[[], Result]] = [
        lambda: sync(chosen.data),
        lambda: asynchronous(chosen.data),
        mixed,
        lambda: three(5_000 if chosen.quick else 30_000, 3_000 if chosen.quick else 12_000),
        lambda: pairing(60 if chosen.quick else 200, 1 if chosen.quick else 5),
    ]
    cases.append(lambda: compared(steps=3 if chosen.quick else 10))
    if chosen.scale:
        cases.append(lambda: scale(400 if chosen.quick else 10_000, 10))
    found: Result = {}
    for case in cases:
        found |= case()
    if chosen.json:
        print(json.dumps(found, indent=2))
        return 0
    for key, value in found.items():
        goal = GOALS.get(key)
        met = goal is None or _met(value, *goal)
        wanted = " ".join(map(str, goal)) if goal else ""
        print(f"{key:32} {value:12.4f}  {wanted}{'' if met else '  MISSED'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
