"""What a group of jobs would do: formulas, and a rehearsal of their turns. Pure.

In the formulas b is for how long a step holds the devices, P what the step takes alone, r rollout, t training
and y the sync of weights, which holds both pools. They follow from two facts: a device is held by one job at
a time, and a job's own step is never shorter than alone.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_interleave.orchestrator.pairing.profile import Profile

ROOM = 8  # batches that an asynchronous job keeps, where nobody says otherwise
_TURNS = 160  # of all members together in a rehearsal
_STEPS = 12  # of the slowest member at least
# Drawn once: a thousand jobs are rated by as many rehearsals, which else do little but draw.
_DICE = random.Random(1)  # noqa: S311 - it decides no secret
_NORMALS = tuple(_DICE.gauss(0, 1) for _ in range(4099))


def duty_bound(profiles: Sequence[Profile]) -> float:
    """Return the duty that no policy exceeds: min(1, sum of b / P)."""
    return min(1.0, sum(profile.share for profile in profiles))


@dataclass(frozen=True)
class TwoPools:
    """A synchronous step on sampler and trainer pools, in seconds; *switch_s* of each pool's context."""

    rollout_s: float
    train_s: float
    sync_s: float = 0.0
    switch_s: float = 0.0


@dataclass(frozen=True)
class PoolsForecast:
    """What a group on sampler and trainer pools does at best, one step of each in turn."""

    period_s: float
    slowdowns: tuple[float, ...]
    """How much longer a step of each member takes than alone."""
    sampler_duty: float
    trainer_duty: float


def two_pools(jobs: Sequence[TwoPools]) -> PoolsForecast:
    """Return what a group on two pools does at best.

    The sampler does all r + y and its handovers, the trainer all t + y and its; no job is faster than alone.
    """
    switches = sum(job.switch_s for job in jobs) if len(jobs) > 1 else 0.0
    sampler = sum(job.rollout_s + job.sync_s for job in jobs)
    trainer = sum(job.train_s + job.sync_s for job in jobs)
    alone = [job.rollout_s + job.train_s + job.sync_s for job in jobs]
    period = max(sampler + switches, trainer + switches, *alone)
    return PoolsForecast(period, tuple(period / one for one in alone), sampler / period, trainer / period)


@dataclass(frozen=True)
class Forecast:
    """What a group of jobs on one pool does."""

    slowdowns: tuple[float, ...]
    """How much longer a step of each member takes than alone."""
    duty: float
    switch_share: float
    """Which part of the time goes into switches."""

    @property
    def gain(self) -> float:
        """Return how many jobs' worth of devices of their own the group saves, by what it gets done."""
        return sum(1.0 / slowdown for slowdown in self.slowdowns) - 1.0


def rehearse(profiles: Sequence[Profile], part: float = 1.0) -> Forecast:
    """Play the turns of a group, first come first served, and return what comes of it.

    It is the arithmetic of turns alone, a hundred times as fast as the simulator, against which it is tested.
    *part* of a rehearsal takes as much less time, and says less exactly.
    """
    dice = random.Random(1)  # noqa: S311 - it decides no secret
    normal = itertools.cycle(_NORMALS).__next__
    slowest = max(profile.period_s for profile in profiles)
    horizon = part * max(_STEPS * slowest, _TURNS / sum(1 / profile.period_s for profile in profiles))
    begun = [dice.random() * profile.period_s for profile in profiles]
    ready, taken = begun.copy(), [[at] for at in begun]
    ended = [list[float]() for _ in profiles]
    own = [_times(profile) for profile in profiles]
    asks = [(at, number) for number, at in enumerate(begun)]
    heapq.heapify(asks)
    free, last, busy, switching, saving = 0.0, -1, 0.0, 0.0, 0.0
    while asks[0][0] < horizon:
        at, who = asks[0]
        held, away, spread, buffered, snapshot, restore = own[who]
        move = 0.0 if last in (-1, who) else saving + restore
        granted = (max(free, at)) + move
        held *= math.exp(spread * (normal() - spread / 2))
        away *= math.exp(spread * (normal() - spread / 2))
        free, last, busy, switching, saving = granted + held, who, busy + held, switching + move, snapshot
        ended[who].append(free)
        if buffered:
            taken[who].append(granted)
            room = taken[who][-ROOM - 1] if len(taken[who]) > ROOM else begun[who]
            ready[who] = max(ready[who], room) + away
            ask = max(free, ready[who])
        else:
            ask = free + away
        heapq.heapreplace(asks, (ask, who))
    slow = tuple(
        max(1.0, _pace(begun[n], ends) / profile.period_s)
        for n, (ends, profile) in enumerate(zip(ended, profiles, strict=True))
    )
    return Forecast(slow, busy / max(free, horizon), switching / max(free, horizon))


def _times(profile: Profile) -> tuple[float, float, float, bool, float, float]:
    """Return what a turn takes, and what passes until the next one, or the next batch of who keeps some."""
    away = profile.period_s - (0.0 if profile.buffered else profile.held_s)
    return profile.held_s, away, profile.spread, profile.buffered, profile.snapshot_s, profile.restore_s


def _pace(begun: float, ends: Sequence[float]) -> float:
    """Return seconds for each step, from the end of the first to that of the last."""
    if len(ends) < 2:
        return ends[0] - begun if ends else 1e9
    return (ends[-1] - ends[0]) / (len(ends) - 1)
