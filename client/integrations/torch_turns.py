"""Turns for a PyTorch job: one call, and its state leaves the devices when another job has its turn.

    turns = interleave_torch(model, optimizer)
    for batch in batches:
        with turns.turn("train"):
            ...

Under torch.distributed each rank makes the same calls. Rank 0 asks for the devices, the others wait for it on
a gloo group of our own, where no watchdog of NCCL looks.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from slurm_interleave.client.core.errors import BadArgument, InterleaveError
from slurm_interleave.client.integrations.torch_device import CudaDevice, Device
from slurm_interleave.client.integrations.torch_offload import Offload, Tensors

if TYPE_CHECKING:
    from slurm_interleave.client.ask import Lease
    from slurm_interleave.client.interleaver import Interleaver
    from slurm_interleave.client.workload import Rank

_LONGER_THAN_ANY_TURN = datetime.timedelta(days=7)


class TorchTurns:
    """The turns of one process, and its state that goes and comes. Every rank makes the same calls."""

    def __init__(
        self, turns: Interleaver, ranks: Ranks, tensors: Tensors, device: Device, tags: Sequence[str] = ()
    ) -> None:
        """*tensors* is what may lie on *device*; see `interleave_torch`, which makes this."""
        self._turns = turns
        self._ranks = ranks
        self._tensors = tensors
        self._device = device
        self._lease: Lease | None = None  # of a rank that does not ask itself
        self.offload = Offload(tensors, device, tags, busy=lambda: self.lease is not None)

    @property
    def lease(self) -> Lease | None:
        """The lease that is held now."""
        return self._turns.lease if self._ranks.asks else self._lease

    def add(self, model: Any = None, optimizer: Any = None, extra: Sequence[Any] = ()) -> None:
        """Move these too from now on: what was made in the first turn, for example."""
        self._tensors.models += _listed(model)
        self._tensors.optimizers += _listed(optimizer)
        self._tensors.extra += extra

    def acquire(self, phase: str = "", timeout: float | None = None) -> Lease:
        """Wait until the job holds its devices with its state on them; see `Interleaver.acquire`.

        Where rank 0 does not get them, the others raise `InterleaveError` with its reason.
        """
        if (held := self.lease) is not None:
            return held
        if self._ranks.alone or not self._turns.active:
            return self._turns.acquire(phase, timeout)
        if not self._ranks.asks:
            return self._follow()
        try:
            lease = self._turns.acquire(phase, timeout)
        except BaseException as error:
            self._ranks.told(f"{type(error).__name__}: {error}")
            raise
        self._ranks.told(lease)
        return lease

    def yield_(self) -> None:
        """Give the devices up, once the work of all ranks on them has ended."""
        if self.lease is None:
            return
        self._device.drain()
        self._lease = None
        self._ranks.meet()
        if self._ranks.asks:
            self._turns.yield_()

    def boundary(self, phase: str = "", timeout: float | None = None) -> Lease:
        """Let others have a turn if they want one: yield, and acquire again."""
        self.yield_()
        return self.acquire(phase, timeout)

    @contextmanager
    def turn(self, phase: str = "", timeout: float | None = None) -> Iterator[Lease]:
        """Hold the devices for the body of a `with`, or as a decorator for each call of a function.

        An exception in one of several ranks yields nothing, since the others are at work: the lease ends with
        the job.
        """
        if self._ranks.alone:
            with self._turns.turn(phase, timeout) as lease:
                yield lease
                self._device.drain()
            return
        held = self.lease is not None
        yield self.acquire(phase, timeout)
        if not held:
            self.yield_()

    def close(self) -> None:
        """Yield, and take turns no more. State that is in host memory then stays there."""
        self.yield_()
        if self.offload.workload is not None:
            self.offload.workload.close()
        self._turns.close()

    def _follow(self) -> Lease:
        told = self._ranks.told(None)
        if isinstance(told, str):
            raise InterleaveError(f"rank 0 was not granted the devices: {told}")
        self.offload.resume()
        self._lease = told
        return self._lease


def interleave_torch(
    model: Any = None,
    optimizer: Any = None,
    *,
    extra: Sequence[Any] = (),
    tags: Sequence[str] = (),
    turns: Interleaver | None = None,
    rank: Rank | None = None,
    device: Device | None = None,
) -> TorchTurns:
    """Return the turns of this process, with the state of *model* and *optimizer* (each one, or several).

    Call it once in each rank, after `init_process_group` where there is one. *extra* are tensors, or
    functions that return some; *tags* choose what is moved (`optimizer`, `lora`, ...; none: everything).
    *turns* is the job's interleaver, made from the environment if it is not given; *rank* this process among
    those of the job on this node, if neither torchrun nor srun says so; *device* where the tensors lie.
    Outside an interleaved job nothing is moved and no call waits. Raises `BadArgument`.
    """
    from slurm_interleave.client.interleaver import Interleaver
    from slurm_interleave.client.workload import Workload

    ranks, turns = _ranks(), turns or Interleaver.from_env()
    tensors = Tensors(_listed(model), _listed(optimizer), list(extra))
    made = TorchTurns(turns, ranks, tensors, device or CudaDevice(), tags)
    if turns.active:
        ranks.check_job(os.environ.get("INTERLEAVE_JOB_ID", ""))
        made.offload.workload = Workload.from_env(made.offload, rank)
        turns.on_grant(made.offload.resume)
    return made


class Ranks(Protocol):
    """The processes of the job that compute together."""

    alone: bool
    asks: bool  # for the devices, for all ranks

    def meet(self) -> None:
        """Wait until all ranks are here."""

    def told(self, word: Any) -> Any:
        """Return the *word* of the rank that asks; the others' do not count."""

    def check_job(self, job: str) -> None:
        """Raise `BadArgument` if the ranks are not of one *job*."""


class _Alone:
    alone = asks = True

    def meet(self) -> None:
        pass

    def told(self, word: Any) -> Any:
        return word

    def check_job(self, _job: str) -> None:
        pass


class _Distributed:
    """All ranks of torch.distributed. Made by all of them at the same place."""

    alone = False

    def __init__(self, dist: Any) -> None:
        self._dist = dist
        self.asks = dist.get_rank() == 0
        self._group = dist.new_group(backend="gloo", timeout=_LONGER_THAN_ANY_TURN)

    def meet(self) -> None:
        self._dist.barrier(group=self._group)

    def told(self, word: Any) -> Any:
        words = [word]
        self._dist.broadcast_object_list(words, src=0, group=self._group)
        return words[0]

    def check_job(self, job: str) -> None:
        words: list[str] = [""] * self._dist.get_world_size()
        self._dist.all_gather_object(words, job, group=self._group)
        if len(set(words)) > 1:
            raise BadArgument(
                f"the ranks are registered as different jobs ({', '.join(sorted(set(words)))}); start them "
                "under `interleave register`, or set INTERLEAVE_JOB to one name for all"
            )


def _ranks() -> Ranks:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return _Distributed(dist) if dist.get_world_size() > 1 else _Alone()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadArgument(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but there is no process group yet; call "
            "torch.distributed.init_process_group before interleave_torch"
        )
    return _Alone()


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
