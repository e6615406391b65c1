"""Long histories by dice: deeper than hypothesis goes, and quick; a failure names its seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from tests.orchestrator.core import among
from tests.orchestrator.core.machine import LONGER, Turns

STEPS = 150
HISTORIES = 120 * LONGER  # in each of the tests below
LOOK_EVERY = 5  # events: a look at all indexes costs more than the event, and hypothesis looks after each
Action = tuple[float, Callable[[Turns], object], Callable[[Turns], object]]


class Dice:
    """What may happen, how often, and what the dice say of each."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - dice, no secret
        self.lost = self.random.choice([0, 0, 0.05, 0.2])
        self.untouched = self.random.choice([0, 0.1, 0.3])
        choose = self.random.choice
        self.actions: list[Action] = [
            (6, lambda t: among.free_names(t.system), self.launch),
            (3, lambda t: among.starting(t.system), lambda t: t.start_part(self.pick())),
            (8, lambda t: among.acquirers(t.system), lambda t: t.acquire(self.pick())),
            (2, lambda t: among.acquirers(t.system), lambda t: t.all_acquire()),
            (8, lambda t: among.holders(t.system), lambda t: t.yield_(self.pick())),
            (choose([0, 1, 3]), lambda t: among.waiters(t.system), lambda t: t.cancel(self.pick())),
            (choose([0.3, 1]), lambda t: among.alive(t.system), lambda t: t.kill(self.pick())),
            (4, lambda t: among.dead(t.system), lambda t: t.end_part(self.pick())),
            (1, lambda t: among.dead(t.system), lambda t: t.job_over(self.pick())),
            (choose([10, 25, 40]), lambda t: among.busy(t.system), self.work),
            (choose([0, 0.5, 2]), lambda t: among.connected(t.system), self.disconnect),
            (3, lambda t: among.away(t.system), lambda t: t.connect(self.pick())),
            (choose([0, 0.3, 1]), lambda _: True, lambda t: t.restart(self.chance(0.6))),
            (choose([0, 0.2]), lambda t: among.holders(t.system), self.crash),
            (1, lambda t: t.system.timers, lambda t: t.fire(self.pick())),
            (0.3, lambda _: True, lambda t: t.settle()),
        ]
        self.weights = list(itertools.accumulate(weight for weight, _, _ in self.actions))

    def pick(self) -> int:
        return self.random.randrange(12)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def launch(self, turns: Turns) -> None:
        nodes = self.random.choice([["n1"], ["n2"], ["n1", "n2"]])
        where = {node: self.random.choice([(0,), (0,), (1,), (0, 1)]) for node in nodes}
        turns.launch(self.pick(), self.random.choice("gh"), where, self.chance(0.3), self.pick())

    def work(self, turns: Turns) -> None:
        thrown = self.random.random()
        bad = "lost" if thrown < self.lost else "untouched" if thrown < self.lost + self.untouched else ""
        turns.work([(self.pick(), bad or "well")])

    def disconnect(self, turns: Turns) -> None:
        turns.disconnect(self.pick(), self.chance(0.4))

    def crash(self, turns: Turns) -> None:
        turns.crash_before_the_answer_to_a_yield(self.pick())

    def throw(self, turns: Turns) -> None:
        """Let one thing happen that can; to settle is always possible."""
        while True:
            [(_, possible, act)] = self.random.choices(self.actions, cum_weights=self.weights)
            if possible(turns):
                act(turns)
                return


@pytest.mark.parametrize("tenth", range(10))
def test_the_promises_hold_in_long_histories(tenth: int) -> None:
    for seed in range(tenth * HISTORIES, (tenth + 1) * HISTORIES):
        dice, turns = Dice(seed), Turns()
        turns.system.look_every = LOOK_EVERY
        try:
            for _ in range(STEPS):
                dice.throw(turns)
            turns.teardown()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
