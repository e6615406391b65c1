"""A small model that learns what comes next in a sequence; its state is on the device and nowhere else.

Where there is no GPU, tensors in host memory stand for those of a device: they leave their memory too when
another job has its turn, and come back to another place.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slurm_interleave.client.integrations.torch_device import CudaDevice, HostDevice
from slurm_interleave.client.integrations.torch_turns import TorchTurns, interleave_torch

WORDS, WIDTH, BATCH = 97, 64, 32


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    out: Path
    steps: int
    seed: int
    pause: float


class Model(nn.Module):
    """Embedding and output share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of each next word."""
        out: torch.Tensor = self.head(self.body(self.embed(words)))
        return out


def train(settings: Settings) -> None:
    """Train by turns, and leave the results."""
    torch.manual_seed(settings.seed)
    torch.set_num_threads(1)
    cuda = torch.cuda.is_available()
    where = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else "cpu"
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several:
        dist.init_process_group("nccl" if cuda else "gloo")
    settings.out.mkdir(parents=True, exist_ok=True)

    turns = interleave_torch(device=CudaDevice() if cuda else HostDevice())
    with turns.turn("load"):
        model: nn.Module = Model().to(where)
        if several:
            model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        turns.add(model, optimizer)
    steps(settings, turns, model, optimizer, where)
    with turns.turn("save"):
        digest = hash_of(model, optimizer)
    if first():
        (settings.out / "weights.sha256").write_text(digest)
        told = {"moves": turns.offload.moves, "arena_bytes": turns.offload.arena_bytes}
        (settings.out / "summary.json").write_text(json.dumps(told))
    turns.close()
    if several:
        dist.destroy_process_group()


def steps(
    settings: Settings, turns: TorchTurns, model: nn.Module, optimizer: torch.optim.Optimizer, where: str
) -> None:
    """Train on two halves of a batch a step; between them others may have the device."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    draw = torch.Generator().manual_seed(1000 * settings.seed + rank)
    for step in range(settings.steps):
        words = torch.randint(WORDS, (2, BATCH), generator=draw)
        # As long as the sampling and the rewards of an RL job might take.
        time.sleep(settings.pause * random.random())  # noqa: S311 - no secret
        with turns.turn("train"):
            optimizer.zero_grad()
            loss = half(model, words[0].to(where))
            turns.boundary("second half")  # the gradients of the first one go and come too
            loss += half(model, words[1].to(where))
            optimizer.step()
        if first():
            with (settings.out / "losses.txt").open("a" if step else "w") as out:
                print(loss.hex(), file=out)


def first() -> bool:
    """Tell whether this is the rank that writes the results."""
    return not dist.is_initialized() or dist.get_rank() == 0


def half(model: nn.Module, words: torch.Tensor) -> float:
    """Add the gradients of half a batch, and return its loss."""
    loss = nn.functional.cross_entropy(model(words), (3 * words + 1) % WORDS) / 2
    loss.backward()
    return loss.item()


def hash_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """Return the hash of every byte of the weights, their gradients and the optimizer's state."""
    sha = hashlib.sha256()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    moments = [tensor for each in optimizer.state.values() for tensor in each.values()]
    for tensor in [*model.state_dict().values(), *gradients, *moments]:
        # A copy: numpy() fixes the size of the memory that it shares.
        sha.update(tensor.detach().cpu().clone().flatten().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()
