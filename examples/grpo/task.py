"""The task: sort a few digits. Anybody can check an answer, so a program gives the reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SYMBOLS = 10

Array = NDArray[Any]


def make_prompts(rng: np.random.Generator, count: int, digits: int) -> Array:
    """Return *count* prompts of *digits* random digits each."""
    return rng.integers(0, SYMBOLS, (count, digits), dtype=np.int8)


def check(prompt: Sequence[int], answer: Sequence[int]) -> float:
    """Return the share of places of *answer* that hold the right digit; 1.0: *prompt*, sorted."""
    right = sum(given == wanted for given, wanted in zip(answer, sorted(prompt), strict=True))
    return right / len(prompt)


def grade(prompts: Array, answers: Array) -> Array:
    """Return the reward of each answer; *answers* holds as many in a row for the first prompt, and so on."""
    asked = np.repeat(prompts, len(answers) // len(prompts), axis=0).tolist()
    return np.array([check(*pair) for pair in zip(asked, answers.tolist(), strict=True)])
