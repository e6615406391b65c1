"""Fits with a traced interleaver: `python -m tests.frameworks.lightning_trace OUT`."""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from frameworks.lightning_fit import Line, batches
from slurm_interleave.client.integrations import lightning as ours
from tests.frameworks.traces import Traced

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class StepFailed(Exception):
    pass


class Watched(Line):
    def __init__(self, interleaver: Traced, fails_at: int = -1) -> None:
        super().__init__()
        self._interleaver, self._fails_at = interleaver, fails_at
        self.moved: list[str] = []

    def training_step(self, batch: list[Any], number: int) -> Any:
        if number == self._fails_at:
            raise StepFailed
        self._interleaver.work(f"train {number}")
        return super().training_step(batch, number)

    def validation_step(self, batch: list[Any], number: int) -> None:
        self._interleaver.work("validate")
        super().validation_step(batch, number)

    def cpu(self) -> Any:
        """Called by the strategy's teardown: the model leaves the device."""
        self.moved.append("held" if self._interleaver.lease else "not held")
        return super().cpu()


def fit(callbacks: int, fails_at: int = -1) -> tuple[Traced, Watched]:
    interleaver = Traced()
    trainer = pl.Trainer(
        max_steps=3,
        accelerator="cpu",
        devices=1,
        val_check_interval=2,
        limit_val_batches=4,
        num_sanity_val_steps=0,
        callbacks=[ours.callback(interleaver) for _ in range(callbacks)],
        **QUIET,
    )
    model = Watched(interleaver, fails_at)
    with contextlib.suppress(StepFailed):
        trainer.fit(model, batches(), batches())
    return interleaver, model


def main(out: Path) -> None:
    told: dict[str, list[str]] = {}
    atexit.register(lambda: out.write_text(json.dumps(told)))  # after what is registered later
    failed, model = fit(1, fails_at=1)
    plain = pl.Trainer(accelerator="cpu", devices=1, **QUIET)
    told |= {
        "fit": fit(1)[0].trace,
        "twice": fit(2)[0].trace,
        "failed": list(failed.trace),
        "failed, at the end": failed.trace,
        "failed, teardown": model.moved,
        "outside": [type(each).__name__ for each in plain.callbacks if hasattr(each, "interleave_turns")],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
