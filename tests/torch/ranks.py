"""What each rank of the distributed tests does; run by `spawn`, so in a module of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from slurm_interleave.client.core.errors import BadArgument, InterleaveError, WrongState
from slurm_interleave.client.integrations.torch_device import HostDevice
from slurm_interleave.client.integrations.torch_regions import reshard
from slurm_interleave.client.integrations.torch_turns import interleave_torch
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
    told = {"moved": moved, "turns": turning(), "jobs": of_different_jobs(rank)}
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


def turning() -> dict[str, object]:
    """Return what each rank sees of the turns that rank 0 asks for."""
    training, session = Training(ddp_views), Granting()
    turns = interleave_torch(
        training.model, training.optimizer, turns=Interleaver(session), device=HostDevice()
    )
    seen: dict[str, object] = {}
    with turns.turn("first") as lease:
        training.step(between=lambda: turns.boundary("second") and None)
        seen["epochs"] = [lease.epoch, turns.lease.epoch if turns.lease else 0]
        try:
            turns.offload.suspend()
        except WrongState:
            seen["busy"] = True
    seen["held after"] = turns.lease is not None
    turns.offload.suspend()
    turns.acquire("back")
    seen["suspended in a turn"] = turns.offload.suspended_bytes
    turns.yield_()
    session.faulted = "its state is lost"
    try:
        turns.acquire("third")
    except InterleaveError as error:
        seen["refused"] = str(error)
    seen["asked"], seen["yielded"] = session.phases, session.yielded
    return seen


def of_different_jobs(rank: int) -> str:
    """Return what ranks are told that registered as a job each."""
    os.environ["INTERLEAVE_JOB_ID"] = f"user-{rank}"
    try:
        interleave_torch(turns=Interleaver(Granting()), device=HostDevice())
    except BadArgument as error:
        return str(error)
    return ""
