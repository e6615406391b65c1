"""Group-relative policy optimisation: sample, compare within the group, take clipped steps.

Each kernel here works on the device's tensors alone. Random numbers come from counters (seed, stream, step)
as on a GPU, so no generator has a state that could get lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo.memory import Tensors
from grpo.policy import Policy
from grpo.settings import Settings
from grpo.task import SYMBOLS

Array = NDArray[Any]

_DECAY_1, _DECAY_2, _TINY = 0.9, 0.99, 1e-8
_STREAMS = ("parameters", "prompts", "sampling")


def random(settings: Settings, stream: str, step: int = 0) -> np.random.Generator:
    """Return the generator of one use of one step."""
    return np.random.default_rng((settings.seed, _STREAMS.index(stream), step))


def advantages(rewards: Array, group_size: int) -> Array:
    """Return how much better than its group each answer is, in standard deviations of the group."""
    groups = rewards.reshape(-1, group_size)
    away = groups - groups.mean(axis=1, keepdims=True)
    return np.asarray(away / (groups.std(axis=1, keepdims=True) + 1e-6)).reshape(-1)


def loss_gradient(new: Array, old: Array, advantage: Array, clip: float) -> Array:
    """Return the gradient by *new* of -min(ratio * advantage, clipped ratio * advantage).

    The ratio is exp(new - old). Once it has moved by *clip* in the wanted direction the gradient is 0.
    """
    ratio = np.exp(new - old)
    enough = np.where(advantage > 0, ratio > 1 + clip, ratio < 1 - clip)
    return np.where(enough, 0, -ratio * advantage)


def kl_gradient(new: Array, reference: Array) -> Array:
    """Return the gradient by *new* of exp(d) - d - 1 with d = reference - new, an estimate of the KL."""
    return np.asarray(1 - np.exp(reference - new))


@dataclass(frozen=True)
class Learner:
    """The kernels of one run."""

    settings: Settings
    policy: Policy

    def start(self, on: Tensors) -> None:
        """Kernel: draw the parameters, and clear what the optimizer keeps."""
        self.policy.initialise(on.parameters, random(self.settings, "parameters"))
        on.reference[:] = on.parameters
        for tensor in (on.first_moment, on.second_moment, on.updates):
            tensor[:] = 0

    def rollout(self, on: Tensors, prompts: Array, step: int) -> Array:
        """Kernel: sample a group of answers for each prompt; return them."""
        chance = random(self.settings, "sampling", step)
        samples = np.arange(self.settings.samples)
        self.policy.show_prompts(on.inputs, np.repeat(prompts, self.settings.group_size, axis=0))
        for place in range(self.policy.digits):
            probable = self.policy.log_probs(on.parameters, on.inputs[:, place], on.hidden[:, place])
            chosen = _sample(probable, chance)
            on.answers[:, place] = chosen
            on.log_probs[:, place] = probable[samples, chosen]
            self.policy.show_choice(on.inputs, place, chosen)
        if self.settings.kl:
            rows = on.rows()
            probable = self.policy.log_probs(on.reference, rows.inputs, rows.back)
            rows.reference_log_probs[:] = _of(probable, rows.answers)
        return on.answers

    def train(self, on: Tensors, rewards: Array) -> None:
        """Kernel: take several clipped steps on the answers of the last rollout."""
        better = np.repeat(advantages(rewards, self.settings.group_size), self.policy.digits)
        # A minibatch is a run of whole groups: the prompts are in random order anyway.
        size = self.settings.samples // self.settings.minibatches
        for _ in range(self.settings.epochs):
            for first in range(0, self.settings.samples, size):
                rows = on.rows(first, first + size)
                self.differentiate(rows, better[first * self.policy.digits :][: len(rows.answers)])
                self._adam(on)

    def differentiate(self, rows: Tensors, advantage: Array) -> None:
        """Fill the gradient with that of the mean loss over *rows*."""
        probable = self.policy.log_probs(rows.parameters, rows.inputs, rows.hidden)
        new = _of(probable, rows.answers)
        by_new = loss_gradient(new, rows.log_probs, advantage, self.settings.clip)
        if self.settings.kl:
            by_new = by_new + self.settings.kl * kl_gradient(new, rows.reference_log_probs)
        by_new = (by_new / len(new)).astype(new.dtype)
        by_logits = -np.exp(probable) * by_new[:, None]
        by_logits[np.arange(len(new)), rows.answers] += by_new
        self.policy.backward(rows.parameters, rows.gradient, rows.inputs, rows.hidden, rows.back, by_logits)

    def _adam(self, on: Tensors) -> None:
        on.updates[0] += 1
        count = int(on.updates[0])
        for mean, value, decay in (
            (on.first_moment, on.gradient, _DECAY_1),
            (on.second_moment, on.gradient**2, _DECAY_2),
        ):
            mean += (1 - decay) * (value - mean)
        first = on.first_moment / (1 - _DECAY_1**count)
        second = on.second_moment / (1 - _DECAY_2**count)
        on.parameters[:] -= self.settings.learning_rate * first / (np.sqrt(second) + _TINY)


def _sample(log_probs: Array, chance: np.random.Generator) -> Array:
    """Return one symbol for each row."""
    reached = np.exp(log_probs).cumsum(axis=1)
    below = (reached < chance.random((len(reached), 1))).sum(axis=1)
    return np.asarray(np.minimum(below, SYMBOLS - 1))


def _of(log_probs: Array, chosen: Array) -> Array:
    """Return the log probability of the symbol *chosen* in each row."""
    return np.asarray(log_probs[np.arange(len(chosen)), chosen])
