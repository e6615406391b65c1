"""The processes of one job that use its devices together: one leads, and the others do as it says.

Source: torch 2.13 `ProcessGroupNCCL.cpp` (watchdog: every 100 ms it looks at
the works that are listed still; with a timeout of 480 s it kills a process whose look hangs).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.job_ranks import JobRanks, rank_of

_LONG = timedelta(days=7)  # gloo's own 30 minutes are less than a turn may take
_NCCL_LISTED_S = 0.3  # after it the watchdog of NCCL has struck the works that ended off its list


class Ranks(Protocol):
    """Who works for a job, seen from one of them. What is called is called by all, in the same order."""

    @property
    def leads(self) -> bool:
        """Whether this one acquires and yields for all."""

    def drain(self) -> None:
        """Return when all have called it and no device has work of theirs."""

    def tell(self, lead: Callable[[], None]) -> None:
        """Have the leader call *lead*; return, or raise, in all when that has ended."""


class Alone:
    """One process, or the driver of a single-controller framework, whose workers idle while it waits."""

    leads = True

    def drain(self) -> None:
        """End what this process has on its devices."""
        synchronize()

    def tell(self, lead: Callable[[], None]) -> None:
        """Do it."""
        lead()


class TorchRanks:
    """Ranks of torch.distributed. They meet on a gloo group of their own: never inside a NCCL call."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._group: Any = None
        self._world: Any = None  # the process group that `_group` is part of
        self._meeting: JobRanks | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Ranks:
        """Return what torchrun and its like set, or `Alone`."""
        size = int(environ.get("WORLD_SIZE") or "1")
        return cls(int(environ.get("RANK") or "0"), size) if size > 1 else Alone()

    @property
    def leads(self) -> bool:
        """Rank 0."""
        return self._rank == 0

    def drain(self) -> None:
        """End what this process has on its devices, meet, and let NCCL's watchdog see that all is done."""
        import torch.distributed as dist

        synchronize()
        if not dist.is_initialized():  # not yet, or no more
            self._meet()
            return
        dist.barrier(group=self._gloo())
        if dist.is_nccl_available() and dist.get_backend() != "gloo":
            time.sleep(_NCCL_LISTED_S)

    def tell(self, lead: Callable[[], None]) -> None:
        """Broadcast how it ended; as long as there is no group, where ranks meet without torch."""
        import torch.distributed as dist

        group = self._gloo() if dist.is_initialized() else None
        error = self._lead(lead)
        text = str(error) or type(error).__name__ if error else ""
        if group is None:
            text = self._meet(text)
        else:
            told = [text]
            dist.broadcast_object_list(told, src=0, group=group)
            text = told[0]
        if error is not None:
            raise error
        if text:
            raise InterleaveError(f"rank {self._rank}: rank 0 was not granted the devices: {text}")

    def _meet(self, text: str = "") -> str:
        """Return the *text* of rank 0, when all have come to where the ranks of a job meet without torch."""
        if self._meeting is None:
            place = f"{rank_of(os.environ)[2]}.torch"
            self._meeting = JobRanks(Interleaver.from_env(), self._rank, self._size, place)
        return self._meeting.meet(text)

    def _lead(self, lead: Callable[[], None]) -> Exception | None:
        if self.leads:
            try:
                lead()
            except Exception as error:  # noqa: BLE001 - raised again, once the others know
                return error
        return None

    def _gloo(self) -> Any:
        import torch.distributed as dist

        if self._group is None or self._world is not dist.group.WORLD:
            self._world = dist.group.WORLD
            self._group = dist.new_group(backend="gloo", timeout=_LONG)
        return self._group


def synchronize() -> None:
    """Return when the device of this process has no work left; a process without torch's CUDA has none."""
    import sys

    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
