"""Lightning: a boundary at each batch of training. An entry point adds the callback; nothing is written.

Sources: Lightning 2.6.6 `trainer/connectors/callback_connector.py` (entry points), `trainer/call.py` and
`strategies/strategy.py`: validation, metrics and loggers come after `on_train_batch_end`, so the boundary is
`on_train_batch_start`; when training fails the strategy uses the device after `on_exception`.
"""

from __future__ import annotations

import atexit
import importlib
import os
from collections.abc import Mapping
from typing import Any

from slurm_interleave.client.integrations.ranks import Alone, TorchRanks
from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.waiting import say

_OURS = "interleave_turns"


def callbacks(environ: Mapping[str, str] = os.environ) -> list[Any]:
    """Return what the entry point adds to each `lightning.pytorch.Trainer`; outside a job of ours nothing."""
    return _added("lightning.pytorch", environ)


def pytorch_lightning_callbacks(environ: Mapping[str, str] = os.environ) -> list[Any]:
    """Return the same for the package `pytorch_lightning`."""
    return _added("pytorch_lightning", environ)


def _added(package: str, environ: Mapping[str, str]) -> list[Any]:
    interleaver = Interleaver.from_env(environ)
    return [callback(interleaver, package)] if interleaver.active else []


def callback(interleaver: Interleaver, package: str = "lightning.pytorch", phase: str = "batch") -> Any:
    """Return a `Callback`, for a trainer that loads no entry points; of two of them one does nothing."""
    base: Any = importlib.import_module(f"{package}.callbacks").Callback

    class InterleaveCallback(base):  # type: ignore[misc]
        """Acquires before the model is on the device, and lets others have their turn between two batches."""

        def __init__(self) -> None:
            setattr(self, _OURS, _Hooks(interleaver, phase))

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            if self is next(each for each in trainer.callbacks if hasattr(each, _OURS)):
                getattr(self, _OURS).setup(trainer, stage)

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            getattr(self, _OURS).boundary()

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            getattr(self, _OURS).teardown()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            getattr(self, _OURS).failed()

    return InterleaveCallback()


class _Hooks:
    """What the callback does, once `setup` was called."""

    def __init__(self, interleaver: Interleaver, phase: str) -> None:
        self._interleaver, self._phase = interleaver, phase
        self._turns: Turns | None = None

    def setup(self, trainer: Any, stage: Any) -> None:
        self._turns = self._turns or Turns(self._interleaver, _ranks(trainer))
        self._turns.start(str(getattr(stage, "value", stage)))

    def boundary(self) -> None:
        if self._turns is not None:
            self._turns.boundary(self._phase)

    def teardown(self) -> None:
        if self._turns is not None:
            self._turns.leave()

    def failed(self) -> None:
        if self._turns is not None and self._turns.active:
            say("training failed; the devices are given back when this process ends")
            atexit.register(self._turns.drop)


def _ranks(trainer: Any) -> Alone | TorchRanks:
    size = int(trainer.world_size)
    return TorchRanks(int(trainer.global_rank), size) if size > 1 else Alone()
