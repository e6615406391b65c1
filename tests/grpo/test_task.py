from __future__ import annotations

import numpy as np

from grpo.task import check, grade, make_prompts


def test_a_sorted_answer_earns_everything() -> None:
    assert check([3, 1, 2, 1], [1, 1, 2, 3]) == 1.0


def test_each_wrong_place_costs_its_share() -> None:
    assert check([3, 1, 2, 1], [1, 2, 1, 3]) == 0.5
    assert check([3, 1], [3, 1]) == 0.0


def test_sorting_other_digits_earns_nothing() -> None:
    assert check([9, 8, 7], [0, 1, 2]) == 0.0


def test_each_answer_is_graded_against_the_prompt_of_its_group() -> None:
    prompts = np.array([[2, 1], [4, 3]])
    answers = np.array([[1, 2], [3, 4], [3, 4], [3, 3]])

    assert grade(prompts, answers).tolist() == [1.0, 0.0, 1.0, 0.5]


def test_prompts_are_digits_that_depend_on_the_seed_alone() -> None:
    first, again, other = (make_prompts(np.random.default_rng(seed), 100, 4) for seed in (1, 1, 2))

    assert set(np.unique(first)) == set(range(10))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
