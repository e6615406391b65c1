"""Turns for a PyTorch job: one call, and its state leaves the devices when another job has its turn.

    turns = interleave_torch(model, optimizer)
    for batch in batches:
        with turns.turn("train"):
            ...

Each rank of torch.distributed makes the same calls: rank 0 asks for the devices, the others wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from slurm_interleave.client.integrations.torch_device import CudaDevice, Device
from slurm_interleave.client.integrations.torch_offload import Offload, Tensors

if TYPE_CHECKING:
    from slurm_interleave.client.integrations.turns import Turns
    from slurm_interleave.client.workload import Rank


class TorchTurns:
    """The turns of one process, and its state that goes and comes with them."""

    def __init__(self, turns: Turns, tensors: Tensors, device: Device, tags: Sequence[str] = ()) -> None:
        """*tensors* is what may lie on *device*; see `interleave_torch`, which makes this."""
        self.turns = turns
        self._tensors = tensors
        self.offload = Offload(tensors, device, tags, busy=self._busy)

    def add(self, model: Any = None, optimizer: Any = None, extra: Sequence[Any] = ()) -> None:
        """Move these too from now on: what was made in the first turn, for example."""
        self._tensors.models += _listed(model)
        self._tensors.optimizers += _listed(optimizer)
        self._tensors.extra += extra

    @contextmanager
    def turn(self, phase: str = "") -> Iterator[None]:
        """Hold the devices for the body of a `with`, or as a decorator for each call of a function.

        A turn inside a turn changes nothing. Raises what `Interleaver.acquire` does; an exception of the body
        is never replaced by one of the yield.
        """
        if self._busy():
            yield
            return
        with self.turns.session(phase):
            self.offload.resume()
            yield

    def boundary(self, phase: str = "") -> None:
        """Let others have a turn within one of ours: drain, yield, acquire again."""
        self.turns.boundary(phase, at_end=True)
        self.offload.resume()

    def close(self) -> None:
        """Yield, and take turns no more. State that is in host memory then stays there."""
        self.turns.leave()
        if self.offload.workload is not None:
            self.offload.workload.close()
        self.turns.interleaver.close()

    def _busy(self) -> bool:
        held = self.turns.holding or self.turns.interleaver.lease is not None
        return self.turns.active and held


def interleave_torch(
    model: Any = None,
    optimizer: Any = None,
    *,
    extra: Sequence[Any] = (),
    tags: Sequence[str] = (),
    turns: Turns | None = None,
    rank: Rank | None = None,
    device: Device | None = None,
) -> TorchTurns:
    """Return the turns of this process, with the state of *model* and *optimizer* (each one, or several).

    Call it once in each rank. *extra* are tensors, or functions that return some; *tags* choose what is moved
    (`optimizer`, `lora`, ...; none: everything). *turns* are the job's, as a framework's module made them
    (none: from the environment); *rank* is this process among those of the job on this node, if neither
    torchrun nor srun says so; *device* where the tensors lie (CUDA's). Outside an interleaved job nothing is
    moved and no call waits. Raises `BadArgument` for a tag that there is not.
    """
    from slurm_interleave.client.integrations.turns import Turns
    from slurm_interleave.client.workload import Workload

    turns = turns or Turns.from_env()
    tensors = Tensors(_listed(model), _listed(optimizer), list(extra))
    made = TorchTurns(turns, tensors, device or CudaDevice(), tags)
    if turns.active:
        made.offload.workload = Workload.from_env(made.offload, rank)
        turns.interleaver.on_grant(made.offload.resume)
    return made


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
