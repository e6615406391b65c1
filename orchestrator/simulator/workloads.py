"""Jobs that are declared by the lengths of their phases, with or without chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from slurm_interleave.orchestrator.simulator.program import Acquire, Cost, Job, Place, Program, Until, Yield

TRAINER, SAMPLER = "trainer", "sampler"
FREE = Cost()


@dataclass(frozen=True)
class Workload:
    """A step of a job, in seconds: rollout, train, and the weights' way from trainer to sampler."""

    name: str
    rollout_s: float
    train_s: float
    sync_s: float = 0.0
    staleness: int = 0
    """How many batches may be ready and not trained on; 0: the rollout begins when the training is over."""
    two_pools: bool = False
    """Whether the sampler takes turns too; else only the trainer's devices do."""
    colocated: bool = False
    """Whether rollout and training have the same devices: nothing of the step is left to others."""

    @property
    def period_s(self) -> float:
        """P: what a step takes alone."""
        return self.rollout_s + self.train_s + self.sync_s

    @property
    def held_s(self) -> float:
        """b: for how long a step needs the trainer's devices."""
        return self.period_s if self.colocated else self.train_s + self.sync_s


# Steps that were published; for an asynchronous job `rollout_s` is how long its trainer waits.
PUBLISHED = (
    Workload("1.5b-math-8k", 214, 125, 1.4),
    Workload("1.5b-math-8k-async", 83, 124, staleness=8),
    Workload("1.5b-math-16k-async", 210, 185, 1.7, staleness=8),
    Workload("1.5b-code-16k-async", 319, 281, 1.9, staleness=8),
    Workload("3b-tools", 26, 61, 0.8),
    Workload("3b-tools-async", 0.2, 71, staleness=1),
    Workload("gpt2", 388, 472, 7.1, two_pools=True),
    Workload("7b-28k-32", 357, 270, colocated=True),
    Workload("7b-28k-64", 151, 133, colocated=True),
    Workload("7b-28k-128", 178, 114, colocated=True),
    Workload("30b-moe", 348, 86),
    Workload("671b", 1050, 650),
)
MIXED = (
    Workload("math-16k", 407 - 185, 185, staleness=8),
    Workload("code-16k", 619 - 281, 281, staleness=8),
)


def job_of(
    workload: Workload,
    name: str,
    places: dict[str, Place],
    steps: int,
    *,
    cost: Cost = FREE,
    start_s: float = 0.0,
    spread: float = 0.0,
    seed: int = 0,
) -> Job:
    """Return a job of *steps* steps; *spread*: the standard deviation of phases, in parts of their mean."""
    make = _sync if workload.staleness == 0 else _async

    def program(now: float) -> Program:
        dice = random.Random(f"{name}-{seed}")  # noqa: S311 - it decides no secret

        def vary(seconds: float) -> float:
            return seconds * dice.lognormvariate(-spread * spread / 2, spread) if spread else seconds

        return make(workload, steps, now, vary)

    return Job(name, {pool: places[pool] for pool in pools_of(workload)}, program, cost, start_s)


def pools_of(workload: Workload) -> tuple[str, ...]:
    """Return the names of the pools whose devices a job shares."""
    return (TRAINER, SAMPLER) if workload.two_pools else (TRAINER,)


Vary = Callable[[float], float]


def _sync(work: Workload, steps: int, now: float, vary: Vary) -> Program:
    for _ in range(steps):
        if work.two_pools:
            now = yield Acquire(SAMPLER, "rollout")
        elif work.colocated:
            now = yield Acquire(TRAINER, "rollout")
        now = yield Until(now + vary(work.rollout_s))
        if work.two_pools:
            yield Yield(SAMPLER)
        if not work.colocated:
            now = yield Acquire(TRAINER, "train")
        now = yield Until(now + vary(work.train_s))
        if work.two_pools:  # the weights go from device to device
            now = yield Acquire(SAMPLER, "sync")
        now = yield Until(now + vary(work.sync_s))
        if work.two_pools:
            yield Yield(SAMPLER)
        now = yield Yield(TRAINER)


def _async(work: Workload, steps: int, now: float, vary: Vary) -> Program:
    """Batches are made one after the other, while there is room for one more, whatever the trainer does."""
    ready, taken = now, [now]
    for step in range(steps):
        room = taken[max(step - work.staleness, 0)]
        ready = max(ready, room) + vary(work.period_s)
        now = yield Until(ready)
        now = yield Acquire(TRAINER, "train")
        taken.append(now)
        now = yield Until(now + vary(work.train_s + work.sync_s))
        now = yield Yield(TRAINER)
