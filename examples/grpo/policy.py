"""The policy: a small autoregressive network, its gradient written by hand.

It gives the probabilities of the next digit from the prompt and the digits chosen so far. All its
parameters lie in one flat array, which is how a device keeps them; `Weights` are views of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo.task import SYMBOLS

Array = NDArray[Any]


class Weights(NamedTuple):
    """Parameters, or their gradient, as views of one flat array."""

    inner: Array  # (features, hidden)
    inner_bias: Array
    outer: Array  # (hidden, symbols)
    outer_bias: Array


@dataclass(frozen=True)
class Policy:
    """The sizes of the network; it holds no parameter itself."""

    digits: int
    hidden: int

    @property
    def features(self) -> int:
        """Inputs: one-hot digits of the prompt and of all answered places but the last, one-hot place."""
        return (2 * self.digits - 1) * SYMBOLS + self.digits

    @property
    def parameters(self) -> int:
        """Length of the flat array."""
        return (self.features + 1) * self.hidden + (self.hidden + 1) * SYMBOLS

    def weights(self, flat: Array) -> Weights:
        """Return the views of *flat*."""
        shapes = ((self.features, self.hidden), (self.hidden,), (self.hidden, SYMBOLS), (SYMBOLS,))
        ends = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
        return Weights(
            *(part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=True))
        )

    def initialise(self, flat: Array, rng: np.random.Generator) -> None:
        """Fill *flat* so that each digit is equally probable at first."""
        flat[:] = 0
        weights = self.weights(flat)
        weights.inner[:] = rng.standard_normal(weights.inner.shape) / np.sqrt(2 * self.digits)

    def show_prompts(self, inputs: Array, prompts: Array) -> None:
        """Fill *inputs* (samples, places, features) with the prompt of each sample, and no answer yet."""
        inputs[:] = 0
        samples = np.arange(len(prompts))
        for place in range(self.digits):
            inputs[samples, :, place * SYMBOLS + prompts[:, place].astype(np.intp)] = 1
            inputs[:, place, place - self.digits] = 1

    def show_choice(self, inputs: Array, place: int, chosen: Array) -> None:
        """Let all later places see the digits *chosen* at *place*."""
        if place + 1 < self.digits:
            columns = (self.digits + place) * SYMBOLS + chosen
            inputs[np.arange(len(chosen)), place + 1 :, columns] = 1

    def log_probs(self, flat: Array, inputs: Array, hidden: Array) -> Array:
        """Return log probabilities (rows, symbols) for *inputs* (rows, features).

        *hidden* (rows, hidden) keeps the activations for `backward`.
        """
        weights = self.weights(flat)
        np.matmul(inputs, weights.inner, out=hidden)
        hidden += weights.inner_bias
        np.tanh(hidden, out=hidden)
        logits = hidden @ weights.outer + weights.outer_bias
        logits -= logits.max(axis=1, keepdims=True)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))

    def backward(
        self, flat: Array, gradient: Array, inputs: Array, hidden: Array, back: Array, by_logits: Array
    ) -> None:
        """Fill *gradient* from the loss's gradient *by_logits*; *back* (rows, hidden) is for work."""
        outer, grad = self.weights(flat).outer, self.weights(gradient)
        np.matmul(hidden.T, by_logits, out=grad.outer)
        np.sum(by_logits, axis=0, out=grad.outer_bias)
        np.matmul(by_logits, outer.T, out=back)
        back *= 1 - hidden * hidden
        np.matmul(inputs.T, back, out=grad.inner)
        np.sum(back, axis=0, out=grad.inner_bias)
