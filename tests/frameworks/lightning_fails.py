"""Fits in a job of the environment until a step raises: `python -m tests.frameworks.lightning_fails`."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from frameworks.lightning_fit import Line, batches
from tests.frameworks.lightning_trace import QUIET, StepFailed


class Fails(Line):
    def training_step(self, batch: list[Any], number: int) -> Any:
        if number:
            raise StepFailed
        return super().training_step(batch, number)


if __name__ == "__main__":
    pl.Trainer(max_steps=3, accelerator="cpu", devices=1, **QUIET).fit(Fails(), batches())
