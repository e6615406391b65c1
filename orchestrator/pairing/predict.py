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
# Most groups slow somebody down too much, and a part of a rehearsal shows that, where it is so much more.
_BRIEF, _PLAIN = 0.35, 0.04
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

    The sampler does all r + y and its handovers, the trainer all t + y and its; each job waits for its own.
    """
    switches = [job.switch_s if len(jobs) > 1 else 0.0 for job in jobs]
    sampler = sum(job.rollout_s + job.sync_s for job in jobs)
    trainer = sum(job.train_s + job.sync_s for job in jobs)
    alone = [job.rollout_s + job.train_s + job.sync_s for job in jobs]
    period = max(
        sampler + sum(switches), trainer + sum(switches), *map(sum, zip(alone, switches, strict=True))
    )
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


def rehearse(profiles: Sequence[Profile], bearable: Sequence[float] = (), turns: int = _TURNS) -> Forecast:
    """Play the turns of a group, first come first served, and return what comes of it.

    It is the arithmetic of turns alone, a hundred times as fast as the simulator, against which it is tested.
    Where one is slowed down by plainly more than is *bearable*, if given, it ends early and is less exact.
    """
    profiles = [profile.turn for profile in profiles]
    slowest = max(profile.period_s for profile in profiles)
    horizon = max(_STEPS * slowest, turns / sum(1 / profile.period_s for profile in profiles))
    stage = _Stage(profiles)
    for end in (_BRIEF * horizon, horizon):
        stage.play(end)
        forecast = stage.forecast(end)
        if any(slow > most + _PLAIN for slow, most in zip(forecast.slowdowns, bearable, strict=False)):
            break
    return forecast


class _Stage:
    """A group in the middle of its turns."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        dice = random.Random(1)  # noqa: S311 - it decides no secret
        self._profiles = profiles
        self._normal = itertools.cycle(_NORMALS).__next__
        self._begun = [dice.random() * profile.period_s for profile in profiles]
        self._ready, self._taken = self._begun.copy(), [[at] for at in self._begun]
        self._ended = [list[float]() for _ in profiles]
        self._own = [_times(profile) for profile in profiles]
        self._asks = [(at, number) for number, at in enumerate(self._begun)]
        heapq.heapify(self._asks)
        # When the pool is free, who had it last, for how long it was busy and switched, and its next saving.
        self._now = (0.0, -1, 0.0, 0.0, 0.0)

    def play(self, end: float) -> None:
        """Let all have the turns that they ask for before *end*."""
        free, last, busy, switching, saving = self._now
        asks, own, ended, normal = self._asks, self._own, self._ended, self._normal
        while asks[0][0] < end:
            at, who = asks[0]
            held, away, spread, buffered, snapshot, restore = own[who]
            move = 0.0 if last in (-1, who) else saving + restore
            granted = max(at, free) + move
            held *= math.exp(spread * (normal() - spread / 2))
            away *= math.exp(spread * (normal() - spread / 2))
            free, last, busy, switching, saving = granted + held, who, busy + held, switching + move, snapshot
            ended[who].append(free)
            ask = max(free, self._batch(who, granted, away)) if buffered else free + away
            heapq.heapreplace(asks, (ask, who))
        self._now = (free, last, busy, switching, saving)

    def _batch(self, who: int, granted: float, makes_s: float) -> float:
        """Return when the next batch of *who* is ready, who takes one when *granted*."""
        taken = self._taken[who]
        taken.append(granted)
        room = taken[-ROOM - 1] if len(taken) > ROOM else self._begun[who]
        self._ready[who] = max(self._ready[who], room) + makes_s
        return self._ready[who]

    def forecast(self, end: float) -> Forecast:
        """Return what came of it until *end*."""
        slow = tuple(
            max(1.0, _pace(begun, ends) / profile.period_s)
            for begun, ends, profile in zip(self._begun, self._ended, self._profiles, strict=True)
        )
        free, _, busy, switching, _ = self._now
        passed = max(free, end)
        return Forecast(slow, busy / passed, switching / passed)


def _times(profile: Profile) -> tuple[float, float, float, bool, float, float]:
    """Return what a turn takes, and what passes until the next one, or the next batch of who keeps some."""
    away = profile.period_s - (0.0 if profile.buffered else profile.held_s)
    return profile.held_s, away, profile.spread, profile.buffered, profile.snapshot_s, profile.restore_s


def _pace(begun: float, ends: Sequence[float]) -> float:
    """Return seconds for each step, from the end of the first to that of the last."""
    if len(ends) < 2:
        return ends[0] - begun if ends else 1e9
    return (ends[-1] - ends[0]) / (len(ends) - 1)
