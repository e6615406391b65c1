"""The run itself: which phase holds the devices, and which leaves them to others."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from numpy.typing import NDArray

from grpo.grpo import Learner, random
from grpo.memory import Memory
from grpo.policy import Policy
from grpo.settings import Settings
from grpo.task import grade, make_prompts
from slurm_interleave.client.sim import SimDevice

Array = NDArray[Any]


class Turns(Protocol):
    """What the run needs of an `Interleaver`."""

    def turn(self, phase: str = "") -> AbstractContextManager[object]:
        """Hold the devices for the body of a `with`."""


@dataclass(frozen=True)
class Trained:
    """What a run leaves behind."""

    parameters: Array
    rewards: tuple[float, ...]  # the mean of each step
    device_s: float
    device_bytes: int


@dataclass
class Run:
    """One training run. *told* is called after each step, with its number from 1 and its mean reward."""

    settings: Settings
    device: SimDevice
    turns: Turns
    told: Callable[[int, float], None] = lambda _step, _reward: None

    def __post_init__(self) -> None:
        policy = Policy(self.settings.digits, self.settings.hidden)
        self._learner = Learner(self.settings, policy)

    def train(self) -> Trained:
        """Run all steps. Raises `OutOfMemory` where another job's state is on the device."""
        rewards = []
        with self.turns.turn("rollout"):
            memory = Memory(self.device, self._learner.policy, self.settings.samples)
            memory.run("start", self._learner.start)
            answers = self._rollout(memory, 0)
        for step in range(1, self.settings.steps + 1):
            graded = self._grade(answers, step - 1)  # on the CPU: another job may have the devices
            last = step == self.settings.steps
            with self.turns.turn("train" if last else "train+rollout"):
                self._update(memory, graded)
                if last:
                    parameters = memory.run("save", lambda on: on.parameters)
                    memory.free()
                else:
                    answers = self._rollout(memory, step)
            rewards.append(float(graded.mean()))
            self.told(step, rewards[-1])
        return Trained(parameters, tuple(rewards), memory.device_s, memory.nbytes)

    def _prompts(self, step: int) -> Array:
        return make_prompts(
            random(self.settings, "prompts", step), self.settings.prompts, self.settings.digits
        )

    def _rollout(self, memory: Memory, step: int) -> Array:
        kernel = partial(self._learner.rollout, prompts=self._prompts(step), step=step)
        return memory.run("rollout", kernel, self.settings.rollout_seconds)

    def _update(self, memory: Memory, rewards: Array) -> None:
        memory.run("train", partial(self._learner.train, rewards=rewards), self.settings.train_seconds)

    def _grade(self, answers: Array, step: int) -> Array:
        began = time.monotonic()
        rewards = grade(self._prompts(step), answers)
        time.sleep(max(0.0, began + self.settings.reward_seconds - time.monotonic()))
        return rewards
