"""A small model with tied weights, views and buffers, and its training, alone or moved between steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from slurm_interleave.client.integrations.torch_device import HostDevice
from slurm_interleave.client.integrations.torch_offload import Offload, Tensors
from tests.torch.needs import nn, torch

VOCABULARY, WIDTH = 61, 24


class Model(nn.Module):
    """Embedding and output are tied; the running mean is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.BatchNorm1d(WIDTH))
        self.lora_A = nn.Parameter(torch.zeros(WIDTH, 2).normal_(std=0.1))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.body(self.embed(words))
        out: torch.Tensor = self.head(hidden + hidden @ self.lora_A @ self.lora_A.T)
        return out


class Training:
    """A model with its optimizer; `step` is deterministic."""

    def __init__(self, wrap: Callable[[nn.Module], nn.Module] = lambda model: model) -> None:
        torch.manual_seed(7)
        self.model = wrap(Model())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.draw = torch.Generator().manual_seed(11)

    def offload(self, device: HostDevice | None = None, **more: Any) -> Offload:
        return Offload(Tensors([self.model], [self.optimizer]), device or HostDevice(), **more)

    def step(self, between: Callable[[], None] = lambda: None) -> float:
        """Train on two micro-batches; *between* runs after the first, with gradients alive."""
        self.optimizer.zero_grad()
        loss = 0.0
        for micro in range(2):
            words = torch.randint(VOCABULARY, (8,), generator=self.draw)
            part = nn.functional.cross_entropy(self.model(words), words.flip(0))
            part.backward()
            loss += part.item()
            if micro == 0:
                between()
        self.optimizer.step()
        return loss

    def digest(self) -> str:
        """Return the hash of every byte of model, gradients and optimizer."""
        sha = hashlib.sha256()
        state = [t for each in self.optimizer.state.values() for t in each.values()]
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        for tensor in [*self.model.state_dict().values(), *grads, *state]:
            whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            # A copy: numpy() fixes the size of the storage that it shares.
            sha.update(whole.detach().clone().flatten().view(torch.uint8).numpy().tobytes())
        return sha.hexdigest()


def storages(training: Training) -> list[torch.UntypedStorage]:
    tensors = [*training.model.parameters(), *training.model.buffers()]
    return [tensor.untyped_storage() for tensor in tensors]
