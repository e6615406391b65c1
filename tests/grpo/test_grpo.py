from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grpo.grpo import Learner, advantages, kl_gradient, loss_gradient
from grpo.memory import Tensors, layout
from grpo.policy import Policy
from grpo.settings import Settings
from grpo.task import make_prompts

SETTINGS = Settings(prompts=4, group_size=3, digits=2, hidden=3, minibatches=1, epochs=1, kl=0.3)
LEARNER = Learner(SETTINGS, Policy(SETTINGS.digits, SETTINGS.hidden))
RNG = np.random.default_rng(7)


def rolled_out() -> Tensors:
    """Return tensors in double precision after a rollout and a move of the parameters."""
    shapes = layout(LEARNER.policy, SETTINGS.samples)
    on = Tensors(
        *(
            np.empty(shape, kind.replace("float32", "float64"))
            for shape, kind in map(shapes.get, Tensors._fields)
        )
    )
    rng = np.random.default_rng(3)
    LEARNER.start(on)
    on.parameters[:] += 0.3 * rng.standard_normal(len(on.parameters))
    LEARNER.rollout(on, make_prompts(rng, SETTINGS.prompts, SETTINGS.digits), step=0)
    on.parameters[:] += 0.3 * rng.standard_normal(len(on.parameters))
    return on


def log_probs_now(rows: Tensors) -> np.ndarray:
    log_probs = LEARNER.policy.log_probs(rows.parameters, rows.inputs, rows.hidden)
    return log_probs[np.arange(len(log_probs)), rows.answers]


def loss(rows: Tensors, advantage: np.ndarray) -> float:
    """The loss as the papers write it; nothing here is shared with the gradient's code."""
    new = log_probs_now(rows)
    ratio, away = np.exp(new - rows.log_probs), rows.reference_log_probs - new
    clipped = np.clip(ratio, 1 - SETTINGS.clip, 1 + SETTINGS.clip)
    gain = np.minimum(ratio * advantage, clipped * advantage)
    return float(np.mean(-gain + SETTINGS.kl * (np.exp(away) - away - 1)))


def test_the_gradient_by_hand_is_the_one_by_differences() -> None:
    rows = rolled_out().rows()
    advantage = np.random.default_rng(5).standard_normal(len(rows.answers))
    LEARNER.differentiate(rows, advantage)

    measured, step = np.empty_like(rows.gradient), 1e-6
    for at, value in enumerate(rows.parameters.copy()):
        rows.parameters[at] = value + step
        above = loss(rows, advantage)
        rows.parameters[at] = value - step
        measured[at] = (above - loss(rows, advantage)) / (2 * step)
        rows.parameters[at] = value

    assert rows.gradient == pytest.approx(measured, abs=1e-8)
    assert np.count_nonzero(rows.gradient) > len(rows.gradient) / 2


def test_that_check_meets_both_clipped_and_free_rows() -> None:
    rows = rolled_out().rows()
    advantage = np.random.default_rng(5).standard_normal(len(rows.answers))

    gradient = loss_gradient(log_probs_now(rows), rows.log_probs, advantage, SETTINGS.clip)

    assert 0 < np.count_nonzero(gradient) < len(gradient)


def test_advantages_have_mean_zero_and_deviation_one_in_each_group() -> None:
    rewards = RNG.random(5 * 8)

    groups = advantages(rewards, 8).reshape(5, 8)

    assert groups.mean(axis=1) == pytest.approx(np.zeros(5), abs=1e-12)
    assert groups.std(axis=1) == pytest.approx(np.ones(5), rel=1e-4)
    assert (groups.argmax(axis=1) == rewards.reshape(5, 8).argmax(axis=1)).all()


def test_a_group_of_equal_rewards_teaches_nothing() -> None:
    assert advantages(np.full(6, 0.3), 3).tolist() == [0.0] * 6


@pytest.mark.parametrize(
    ("ratio", "advantage", "wanted"),
    [
        pytest.param(1.3, 2.0, 0.0, id="raised enough"),
        pytest.param(0.7, -2.0, 0.0, id="lowered enough"),
        pytest.param(1.1, 2.0, -2.2, id="may rise further"),
        pytest.param(0.7, 2.0, -1.4, id="fell and must rise"),
        pytest.param(1.3, -2.0, 2.6, id="rose and must fall"),
    ],
)
def test_clipping_stops_the_gradient_in_the_wanted_direction_only(
    ratio: float, advantage: float, wanted: float
) -> None:
    new, old = np.array([np.log(ratio) - 1.0]), np.array([-1.0])

    assert loss_gradient(new, old, np.array([advantage]), clip=0.2) == pytest.approx([wanted])


def test_the_kl_pulls_towards_the_reference() -> None:
    new, reference = np.array([-1.0, -2.0, -3.0]), np.array([-2.0, -2.0, -2.0])

    assert np.sign(kl_gradient(new, reference)).tolist() == [1.0, 0.0, -1.0]


def test_a_rollout_remembers_the_probabilities_of_what_it_chose() -> None:
    on = rolled_out()
    LEARNER.rollout(on, make_prompts(RNG, SETTINGS.prompts, SETTINGS.digits), step=1)
    rows = on.rows()

    assert rows.log_probs == pytest.approx(log_probs_now(rows))


def test_samples_come_as_often_as_their_probabilities_say() -> None:
    settings = replace(SETTINGS, prompts=1, group_size=20_000, digits=1)
    learner = Learner(settings, Policy(1, settings.hidden))
    shapes = layout(learner.policy, settings.samples)
    on = Tensors(*(np.empty(*shapes[name]) for name in Tensors._fields))
    learner.start(on)
    weights = learner.policy.weights(on.parameters)
    weights.outer_bias[:] = np.log(np.arange(1, 11))

    answers = learner.rollout(on, np.zeros((1, 1), np.int8), step=0)

    shares = np.bincount(answers[:, 0], minlength=10) / settings.samples
    assert shares == pytest.approx(np.arange(1, 11) / 55, abs=0.01)


def test_an_update_raises_the_probability_of_better_answers() -> None:
    on = rolled_out()
    LEARNER.rollout(on, make_prompts(RNG, SETTINGS.prompts, SETTINGS.digits), step=1)
    rewards = np.random.default_rng(1).random(SETTINGS.samples)
    rows = on.rows()
    advantage = np.repeat(advantages(rewards, SETTINGS.group_size), SETTINGS.digits)
    before = loss(rows, advantage)

    LEARNER.train(on, rewards)

    assert on.updates[0] == 1
    assert loss(rows, advantage) < before
