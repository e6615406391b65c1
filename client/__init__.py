"""What runs in the user's job and on login nodes.

The names below are loaded when they are asked for: the daemons, which import their own parts of this package,
need none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_interleave.client.aio import AsyncInterleaver
    from slurm_interleave.client.ask import Lease, Stop, Stopped
    from slurm_interleave.client.connect import Unreachable
    from slurm_interleave.client.core.errors import (
        Deadlock,
        InterleaveError,
        JobFaulted,
        NotRegistered,
        StaleLease,
    )
    from slurm_interleave.client.interleaver import Interleaver
    from slurm_interleave.client.job_ranks import JobRanks
    from slurm_interleave.client.notices import Notice

__all__ = [
    "AsyncInterleaver",
    "Deadlock",
    "InterleaveError",
    "Interleaver",
    "JobFaulted",
    "JobRanks",
    "Lease",
    "NotRegistered",
    "Notice",
    "StaleLease",
    "Stop",
    "Stopped",
    "Unreachable",
]
_MODULES = {
    "aio": ("AsyncInterleaver",),
    "ask": ("Lease", "Stop", "Stopped"),
    "connect": ("Unreachable",),
    "core.errors": ("Deadlock", "InterleaveError", "JobFaulted", "NotRegistered", "StaleLease"),
    "interleaver": ("Interleaver",),
    "job_ranks": ("JobRanks",),
    "notices": ("Notice",),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            value: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
