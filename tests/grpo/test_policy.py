from __future__ import annotations

import numpy as np
import pytest

from grpo.policy import Policy

POLICY = Policy(digits=3, hidden=5)
PROMPTS = np.array([[1, 2, 3], [9, 0, 9]], np.int8)


def shown(prompts: np.ndarray) -> np.ndarray:
    inputs = np.empty((len(prompts), POLICY.digits, POLICY.features))
    POLICY.show_prompts(inputs, prompts)
    return inputs


def drawn() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(POLICY.parameters)


def test_the_weights_are_views_of_the_whole_flat_array() -> None:
    flat = np.zeros(POLICY.parameters)

    for weight in POLICY.weights(flat):
        weight += 1

    assert flat.tolist() == [1.0] * POLICY.parameters


def test_at_the_start_each_digit_is_equally_probable() -> None:
    flat = np.empty(POLICY.parameters)
    POLICY.initialise(flat, np.random.default_rng(0))

    log_probs = POLICY.log_probs(flat, shown(PROMPTS)[:, 0], np.empty((2, 5)))

    assert np.exp(log_probs) == pytest.approx(np.full((2, 10), 0.1))


def test_probabilities_sum_to_one() -> None:
    log_probs = POLICY.log_probs(drawn(), shown(PROMPTS)[:, 1], np.empty((2, 5)))

    assert np.exp(log_probs).sum(axis=1) == pytest.approx([1, 1])


def test_a_choice_is_seen_by_later_places_only() -> None:
    before, after = shown(PROMPTS), shown(PROMPTS)

    POLICY.show_choice(after, 1, np.array([7, 8]))

    changed = np.argwhere(before != after).tolist()
    assert changed == [[0, 2, 47], [1, 2, 48]]


def test_prompts_and_choices_of_many_digits_keep_their_columns() -> None:
    policy = Policy(digits=20, hidden=1)
    inputs = np.empty((1, 20, policy.features))

    policy.show_prompts(inputs, np.full((1, 20), 9, np.int8))
    policy.show_choice(inputs, 18, np.array([9]))

    assert np.flatnonzero(inputs[0, 19]).tolist() == [*range(9, 200, 10), 389, policy.features - 1]
