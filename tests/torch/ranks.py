"""What each rank of the distributed tests does; run by `spawn`, so in a module of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.integrations.ranks import TorchRanks
from slurm_interleave.client.integrations.torch_device import HostDevice
from slurm_interleave.client.integrations.torch_regions import reshard
from slurm_interleave.client.integrations.torch_turns import interleave_torch
from slurm_interleave.client.integrations.turns import Turns
from slurm_interleave.client.interleaver import Interleaver
from tests.torch.granting import Granting
from tests.torch.needs import nn, torch
from tests.torch.training import Training

RANKS = 2
STEPS = 3


def ddp(model: nn.Module) -> nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model)


def ddp_views(model: nn.Module) -> nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def fsdp2(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    fully_shard(model.body, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


WRAPS: dict[str, Callable[[nn.Module], nn.Module]] = {"ddp": ddp, "ddp-views": ddp_views, "fsdp2": fsdp2}


def main(rank: int, folder: str) -> None:
    """Train with each wrap, alone and moved, and write down what came of it."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    moved = {name: compared(wrap) for name, wrap in WRAPS.items()}
    told = {"moved": moved, "turns": turning(rank)}
    (Path(folder) / f"{rank}").write_text(json.dumps(told))
    dist.destroy_process_group()
    os._exit(0)  # at a usual end of Python a thread of gloo may abort the process


def compared(wrap: Callable[[nn.Module], nn.Module]) -> dict[str, object]:
    """Return whether a training that is moved stays the same, and what it leaves on the device."""
    alone, moved = Training(wrap), Training(wrap)
    offload = moved.offload()
    left: list[int] = []

    def there_and_back() -> None:
        offload.suspend()
        left.append(offload.resident_bytes())
        offload.resume()

    losses = [alone.step() for _ in range(STEPS)]
    again = []
    for _ in range(STEPS):
        there_and_back()
        again.append(moved.step(between=there_and_back))
    with torch.no_grad():  # leaves FSDP2's root whole
        words = torch.arange(8)
        alone.model(words)
        moved.model(words)
    there_and_back()
    reshard([alone.model])
    return {"losses": again == losses, "bits": alone.digest() == moved.digest(), "left": max(left)}


def turning(rank: int) -> dict[str, object]:
    """Return what a rank sees of turns that rank 0 asks for."""
    training, session = Training(ddp_views), Granting()
    taken = Turns(Interleaver(session), TorchRanks(rank, RANKS))
    turns = interleave_torch(training.model, training.optimizer, turns=taken, device=HostDevice())
    seen: dict[str, object] = {}
    with turns.turn("first"):
        training.step(between=lambda: turns.boundary("second"))
        try:
            turns.offload.suspend()
        except WrongState:
            seen["busy"] = True
    turns.offload.suspend()
    with turns.turn("back"):
        seen["away"] = turns.offload.suspended_bytes
    return seen | {"moves": turns.offload.moves, "asked": session.phases, "yielded": session.yielded}
