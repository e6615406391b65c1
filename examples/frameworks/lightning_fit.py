"""A Lightning fit whose batches are turns, on CPU: lightning_fit.py OUT. The script has nothing of ours."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

BATCHES = 6


class Line(pl.LightningModule):
    """Fits a line."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.losses: list[float] = []

    def training_step(self, batch: list[Any], _: int) -> Any:
        """Return the loss."""
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: list[Any], _: int) -> None:
        """Use the device between two batches of training."""
        self.layer(batch[0])

    def configure_optimizers(self) -> Any:
        """Return one with a state."""
        return torch.optim.AdamW(self.parameters(), lr=0.05)


def batches() -> DataLoader[Any]:
    """Return the same ones each time."""
    inputs = torch.randn(4 * BATCHES, 4, generator=torch.Generator().manual_seed(5))
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4)


def main(out: Path) -> None:
    """Fit, and write losses and weights."""
    pl.seed_everything(1)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, val_check_interval=2, enable_model_summary=False, **quiet
    )
    model = Line()
    trainer.fit(model, batches(), batches())
    weights = hashlib.sha256(model.layer.weight.detach().numpy().tobytes()).hexdigest()
    out.write_text(json.dumps({"losses": model.losses, "weights": weights}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
