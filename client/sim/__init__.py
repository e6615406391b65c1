"""The simulated accelerator: the honest stand-in wherever there is no GPU.

It keeps the properties that interleaving depends on (fixed capacity, out of memory, state that must be moved
to let another job in) and none of a GPU's speed. `arena` needs the standard library alone; `device`, which
jobs use, needs NumPy.
"""

from typing import TYPE_CHECKING, Any

from slurm_interleave.client.sim.errors import (
    ChecksumMismatch,
    NotResident,
    OutOfMemory,
    SimError,
    StillWorking,
)

if TYPE_CHECKING:
    from slurm_interleave.client.sim.device import SimBuffer, SimDevice

__all__ = [
    "ChecksumMismatch",
    "NotResident",
    "OutOfMemory",
    "SimBuffer",
    "SimDevice",
    "SimError",
    "StillWorking",
]


def __getattr__(name: str) -> Any:
    if name in ("SimBuffer", "SimDevice"):
        from slurm_interleave.client.sim import device

        return getattr(device, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
