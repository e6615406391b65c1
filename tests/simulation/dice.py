"""All chance of a simulation, from one seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from slurm_interleave.orchestrator.core.policy import POLICIES
from slurm_interleave.orchestrator.core.rules import Rules

T = TypeVar("T")


class Dice:
    """How bad a world is: each seed draws its own habits, so that some are calm and some are hell."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - dice, no secret
        draw = self._random.choice
        self.calm = False  # faults have stopped
        self.slow = draw([0.0005, 0.005, 0.05])  # seconds that a message takes, about
        self.straggles = draw([0.0, 0.01, 0.05])  # share of messages that take much longer
        self.repeats = draw([0.0, 0.02, 0.1])  # share of calls that arrive twice
        self.fails = draw([0.0, 0.05, 0.2])  # share of moves that fail and change nothing
        self.loses = draw([0.0, 0.0, 0.02])  # share of moves that lose the state
        self.crashes_at_record = draw([0.0, 0.001, 0.005])
        self.gap = draw([0.3, 1.0, 4.0])  # seconds between faults, about

    def chance(self, share: float) -> bool:
        """Tell whether something happens that happens in *share* of all cases; never when it is calm."""
        return not self.calm and self._random.random() < share

    def coin(self, share: float = 0.5) -> bool:
        """The same for what is no fault."""
        return self._random.random() < share

    def among(self, things: Sequence[T]) -> T:
        return self._random.choice(things)

    def sample(self, things: Sequence[T]) -> list[T]:
        """Return all of them in any order."""
        return self._random.sample(things, len(things))

    def weighted(self, things: Sequence[T], weights: Sequence[float]) -> T:
        return self._random.choices(things, weights)[0]

    def about(self, seconds: float) -> float:
        """Return a time that is short mostly, and long sometimes."""
        return self._random.expovariate(1.0) * seconds

    def between(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def delay(self) -> float:
        """Return how long a message takes."""
        seconds = self.slow * self._random.random()
        return seconds + self._random.random() * 2.0 if self.chance(self.straggles) else seconds

    def notice(self) -> float:
        """Return how long it takes to notice that a connection is lost: at once, or by keepalive."""
        return self._random.random() * self._random.choice([0.01, 1.0, 15.0])


def rules_by(dice: Dice) -> Rules:
    """Return the rules of a site."""
    return Rules(
        policy=dice.weighted(list(POLICIES), [4, 1, 1, 1, 1]),
        ageing_s=30.0,
        eager=dice.weighted(["off", "always", "learned"], [3, 1, 1]),
        co_resident=dice.coin(0.2),
        max_hold_s=dice.weighted([0.0, 0.5], [4, 1]),
        max_hold_by_group=dice.weighted([{}, {"g": 0.5}], [4, 1]),
        yield_grace_s=0.3,
        force=dice.coin(0.1),
        gone_grace_s=2.0,
    )
