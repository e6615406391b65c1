from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest

from grpo.job import Run, Trained
from grpo.memory import Memory
from grpo.policy import Policy
from grpo.settings import Settings
from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.sim import NotResident, OutOfMemory, SimDevice
from slurm_interleave.client.sim.arena import Arena

FAST = Settings(
    steps=8,
    prompts=16,
    digits=3,
    hidden=128,
    rollout_seconds=0,
    train_seconds=0,
    reward_seconds=0,
)


class Alone:
    """Turns of a job that has the device to itself."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def turn(self, phase: str = "") -> AbstractContextManager[object]:
        self.phases.append(phase)
        return nullcontext()


class MovedAway:
    """Turns between which the job's state is in host memory, and another job overwrites both devices.

    It comes back to the other device each time.
    """

    def __init__(self, arena: Arena, job: str, when_away: Callable[[], None] | None = None) -> None:
        self._arena, self._job = arena, job
        self._when_away = when_away or self._overwrite
        self.bytes_back: list[int] = []

    @contextmanager
    def turn(self, phase: str = "") -> Iterator[None]:
        assert phase
        self.bytes_back.append(self._arena.restore(self._job, {0: 1, 1: 0}))
        yield
        self._arena.snapshot(self._job)
        self._when_away()

    def _overwrite(self) -> None:
        for index in range(2):
            device = SimDevice(self._arena, index, "other")
            device.put(np.full(device.total_bytes, 0xFF, np.uint8)).free()


def alone(arena: Arena, settings: Settings) -> Trained:
    return Run(settings, SimDevice(arena, 0, "alone"), Alone()).train()


def test_the_reward_rises(arena: Arena) -> None:
    rewards = alone(arena, replace(FAST, steps=16)).rewards

    assert rewards[0] < 0.2
    assert rewards[-1] > 0.5


def test_a_run_gives_the_same_bits_each_time_and_others_for_another_seed(arena: Arena) -> None:
    first, again, other = (alone(arena, replace(FAST, seed=seed)) for seed in (1, 1, 2))

    assert first.parameters.tobytes() == again.parameters.tobytes()
    assert first.rewards == again.rewards
    assert first.parameters.tobytes() != other.parameters.tobytes()
    assert first.rewards != other.rewards


def test_a_run_whose_state_leaves_the_device_after_each_turn_gives_the_same_bits(arena: Arena) -> None:
    turns = MovedAway(arena, "moved")
    moved = Run(FAST, SimDevice(arena, 0, "moved"), turns).train()
    unmoved = alone(arena, FAST)

    assert moved.parameters.tobytes() == unmoved.parameters.tobytes()
    assert moved.rewards == unmoved.rewards
    assert turns.bytes_back[0] == 0
    assert all(moved_back >= moved.device_bytes for moved_back in turns.bytes_back[1:])
    assert arena.violations() == []


def test_the_host_has_no_copy_of_the_state(arena: Arena) -> None:
    turns = MovedAway(arena, "lost", when_away=lambda: arena.discard("lost"))

    with pytest.raises(NotResident):
        Run(FAST, SimDevice(arena, 0, "lost"), turns).train()


def test_each_step_is_one_turn_and_the_first_rollout_another(arena: Arena) -> None:
    turns, steps = Alone(), []

    Run(replace(FAST, steps=3), SimDevice(arena, 0, "a"), turns, lambda step, _: steps.append(step)).train()

    assert turns.phases == ["rollout", "train+rollout", "train+rollout", "train"]
    assert steps == [1, 2, 3]


def test_the_divergence_from_the_first_policy_holds_it_back(arena: Arena) -> None:
    free, held = (alone(arena, replace(FAST, kl=kl)).rewards[-1] for kl in (0.0, 10.0))

    assert held < free


def test_the_default_state_fits_on_the_demos_device_once_but_not_twice(arena: Arena) -> None:
    settings = Settings()
    policy = Policy(settings.digits, settings.hidden)
    memory = Memory(SimDevice(arena, 0, "a"), policy, settings.samples)

    assert memory.nbytes > arena.config.memory_bytes / 2
    with pytest.raises(OutOfMemory):
        Memory(SimDevice(arena, 0, "b"), policy, settings.samples)


def test_a_finished_run_leaves_the_device_empty(arena: Arena) -> None:
    alone(arena, FAST)

    assert arena.used_bytes(0) == 0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"steps": 0}, "--steps 0: must be a finite number, at least 1"),
        ({"group_size": 1}, "--group-size 1: must be a finite number, at least 2"),
        ({"train_seconds": float("nan")}, "--train-seconds nan"),
        ({"reward_seconds": -1.0}, "--reward-seconds -1.0"),
        ({"prompts": 10}, "--prompts 10 cannot be split into 4 equal minibatches"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        replace(FAST, **wrong)
