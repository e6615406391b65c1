"""SkyRL: python -m slurm_interleave.client.integrations.skyrl, with the options of its `main_base`.

Source: SkyRL 0.3.0 `skyrl/train/utils/callbacks.py`, `trainer.py`, `fully_async_trainer.py`,
`entrypoints/main_base.py`. Saving, weight sync, evaluation and logging come after `on_step_end`, where the
engines sleep: that is the boundary. Engines and models are made in `run`, so that is what is held.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver

# Not public, and so looked for: where training begins, and what follows the weight sync.
_PRIVATE = ("_run_training", "_profiler_step")


def callback(base: Any, turns: Turns) -> Any:
    """Return a callback of the class *base* (`TrainingCallback`): a boundary at the end of each step."""

    class InterleaveCallback(base):  # type: ignore[misc]
        """Yields and acquires; nothing else."""

        def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
            turns.boundary("step", at_end=True)

        def on_train_end(self, trainer: Any, callback_input: Any, control: Any) -> None:
            turns.leave()

    return InterleaveCallback()


def experiment(base: Any, callback_base: Any, turns: Turns) -> Any:
    """Return *base* (`BasePPOExp`, or of it) that holds the devices while it runs, boundaries apart."""

    class InterleaveExp(base):  # type: ignore[misc]
        """Its trainer has our callback."""

        def get_trainer(self, *args: Any, **kwargs: Any) -> Any:
            trainer = super().get_trainer(*args, **kwargs)
            trainer.add_callback(callback(callback_base, turns))
            return trainer

        def run(self) -> None:
            with turns.session("init"):
                super().run()

    return InterleaveExp


def async_trainer(base: Any, turns: Turns) -> Any:
    """Return *base* (`FullyAsyncRayPPOTrainer`, which takes no callbacks) that shares the trainer's devices.

    They are held from the training of a batch to the end of the weight sync, and while something is saved.
    Raises `WrongState` for a release whose trainer is made otherwise.
    """
    if missing := [name for name in _PRIVATE if not hasattr(base, name)]:
        raise WrongState(f"{base.__name__} of this SkyRL has no {missing[0]}: it is known of release 0.3.0")

    class InterleaveAsync(base):  # type: ignore[misc]
        """Acquires in threads: generation shares the event loop."""

        async def _run_training(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.to_thread(turns.start, "train")
            return await super()._run_training(*args, **kwargs)

        def _profiler_step(self) -> None:
            super()._profiler_step()
            turns.leave()

        def save_checkpoints(self) -> Any:
            with turns.session("save"):
                return super().save_checkpoints()

        def save_models(self) -> Any:
            with turns.session("save"):
                return super().save_models()

    return InterleaveAsync


def main() -> None:
    """Run as `skyrl.train.entrypoints.main_base` does; the driver of the turns is the remote entry point."""
    import ray
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.entrypoints import main_base
    from skyrl.train.utils import validate_cfg
    from skyrl.train.utils.utils import initialize_ray

    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
    def entry(cfg: Any) -> None:
        from skyrl.train.utils.callbacks import TrainingCallback

        turns = Turns(Interleaver.from_env())
        experiment(main_base.BasePPOExp, TrainingCallback, turns)(cfg).run()

    cfg = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(cfg)
    initialize_ray(cfg)
    ray.get(entry.remote(cfg))


if __name__ == "__main__":
    main()
