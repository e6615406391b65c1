"""Buffers of simulated devices stand for the memory that an offload frees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slurm_interleave.client.integrations.torch_offload import Offload
from slurm_interleave.client.sim import SimBuffer, SimDevice


class OnSim:
    """An offload whose bytes lie on a simulated device as long as they are not in host memory."""

    can_discard = False
    spills = True

    def __init__(self, offload: Offload, device: SimDevice) -> None:
        self.offload, self._device = offload, device
        self.tags = offload.tags
        self._buffer: SimBuffer | None = None
        self._show()

    @property
    def arena_bytes(self) -> int:
        return self.offload.arena_bytes

    def suspend(self, tags: Sequence[str], *, discard: bool) -> None:
        self.offload.suspend(tags, discard=discard)
        self._show()

    def resume(self, tags: Sequence[str]) -> None:
        self.offload.resume(tags)
        self._show()

    def _show(self) -> None:
        if self._buffer is not None:
            self._buffer.free()
        resident = self.offload.resident_bytes()
        self._buffer = self._device.empty(resident, np.uint8) if resident else None
