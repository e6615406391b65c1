"""A loop with Accelerate, in turns, on CPU; alone or under torchrun: accelerate_loop.py OUT."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from slurm_interleave.client.integrations import accelerate as interleave


def main(out: Path) -> None:
    """Train, and write the losses."""
    torch.manual_seed(1)
    inputs = torch.randn(32, 4)
    losses = []
    with interleave.session(cpu=True) as (accelerator, turns):
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for batch, wanted in loader:
            turns.boundary("step")
            loss = torch.nn.functional.mse_loss(model(batch), wanted)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    if accelerator.is_main_process:
        out.write_text(json.dumps({"ranks": accelerator.num_processes, "losses": losses}))
    accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
