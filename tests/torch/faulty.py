"""A device that fails when the test says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from slurm_interleave.client.integrations.torch_device import HostDevice
from tests.torch.needs import torch


class Faulty(HostDevice):
    """Fails at a copy, or cannot pin."""

    def __init__(self) -> None:
        self.copies_left = -1
        self.pins = True
        self.pinned: dict[int, int] = {}

    def register(self, address: int, size: int) -> bool:
        if self.pins:
            assert address not in self.pinned
            self.pinned[address] = size
        return self.pins

    def unregister(self, address: int) -> None:
        del self.pinned[address]

    @contextmanager
    def copying(self, devices: Sequence[Any]) -> Iterator[Faulty]:
        assert devices == [torch.device("cpu")]
        yield self

    def copy(self, to: Any, source: Any, device: Any) -> None:
        if self.copies_left == 0:
            raise RuntimeError("the copy failed")
        self.copies_left -= 1
        super().copy(to, source, device)
