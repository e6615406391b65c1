"""TRL's trainers, and all others that take callbacks of Transformers: one boundary a step.

    with trl.session() as turns:  # before GRPOConfig, which touches the device
        trainer = GRPOTrainer(..., args=GRPOConfig(...), callbacks=[trl.callback(turns)])
        trainer.train()

Sources: TRL 1.16.0 `trainer/grpo_trainer.py`, Transformers 5.24.0 `trainer.py` and `trainer_callback.py`:
logging, evaluation and saving come after `on_step_end`, so the boundary is `on_step_begin`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from slurm_interleave.client.integrations.turns import Turns


def session(phase: str = "load") -> AbstractContextManager[Turns]:
    """Hold the devices from here on, so that configuration and trainer can be made; yield at the end."""
    return Turns.from_env().session(phase)


def callback(turns: Turns, phase: str = "step") -> Any:
    """Return a `transformers.TrainerCallback` that lets others have their turn between two steps."""
    from transformers import TrainerCallback

    class InterleaveCallback(TrainerCallback):  # type: ignore[misc]
        """Yields and acquires; nothing else."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            turns.boundary(phase)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            turns.leave()

    return InterleaveCallback()
