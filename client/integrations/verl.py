"""verl: trainers that take turns: trainer.v1.trainer_mode=interleave_sync, or interleave_async.

    VERL_USE_EXTERNAL_MODULES=slurm_interleave.client.integrations.verl_plugin

Source: verl 0.9.1 `trainer/ppo/v1/trainer_base.py`. `fit` ends without `on_train_end` at the last step. The
data path is chosen by the name of the mode, so the trainers set their base's back before anything reads it.
"""

from __future__ import annotations

from typing import Any

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.waiting import say

SYNC, ASYNC = "interleave_sync", "interleave_async"


def register() -> None:
    """Register both trainers. Raises `ImportError` for a verl that has no such registry."""
    from verl.trainer.ppo.v1 import PPOTrainerSeparateAsync, PPOTrainerSync, register_trainer

    turns = Turns(Interleaver.from_env())
    register_trainer(SYNC)(sync_trainer(PPOTrainerSync, turns))
    register_trainer(ASYNC)(async_trainer(PPOTrainerSeparateAsync, turns))


def sync_trainer(base: Any, turns: Turns) -> Any:
    """Return *base* (`PPOTrainerSync`) with a boundary after each update: rollout replicas sleep then."""

    class InterleaveSync(_held(base, turns, "sync")):  # type: ignore[misc]
        """All devices of the job are shared."""

        def on_step_end(self) -> None:
            turns.boundary("step", at_end=True)
            super().on_step_end()

    return InterleaveSync


def async_trainer(base: Any, turns: Turns) -> Any:
    """Return *base* (`PPOTrainerSeparateAsync`) with the trainer's devices from samples to weight sync."""

    class InterleaveAsync(_held(base, turns, "separate_async")):  # type: ignore[misc]
        """The trainer's devices are shared; rollout has devices of its own."""

        def __init__(self, config: Any) -> None:
            _require_own_rollout(config)
            super().__init__(config)

        def init(self) -> None:
            super().init()
            turns.leave()

        def on_sample_begin(self) -> None:
            turns.leave()
            super().on_sample_begin()

        def on_sample_end(self) -> None:
            super().on_sample_end()
            turns.start("train")

        def on_step_end(self) -> None:
            super().on_step_end()
            turns.leave()

    return InterleaveAsync


def _held(base: Any, turns: Turns, mode: str) -> Any:
    """Return *base* that acquires before its workers are made, and yields however `fit` ends."""

    class Held(base):  # type: ignore[misc]
        """What both trainers have."""

        def __init__(self, config: Any) -> None:
            config.trainer.v1.trainer_mode = mode
            super().__init__(config)

        def init(self) -> None:
            turns.start("init")
            super().init()

        def fit(self, *args: Any, **kwargs: Any) -> None:
            try:
                super().fit(*args, **kwargs)
            finally:
                turns.drop()

    return Held


def _require_own_rollout(config: Any) -> None:
    if config.actor_rollout_ref.get("hybrid_engine", True):
        raise BadArgument(
            "actor_rollout_ref.hybrid_engine is not False: rollout replicas would use the trainer's devices "
            f"while another job has them; set it to False, or use trainer.v1.trainer_mode={SYNC}"
        )
    engine = config.actor_rollout_ref.rollout.checkpoint_engine
    nccl = (engine.get("engine_kwargs") or {}).get("nccl") or {}
    if engine.get("backend") == "nccl" and not nccl.get("rebuild_group"):
        say(
            "checkpoint_engine.engine_kwargs.nccl.rebuild_group is not true: a communicator spans trainer "
            "and rollout, and the cuda backend cannot save the trainer alone"
        )
