"""Nodes that are drained: what stands for criu, and for the processes that it saves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_interleave.client.core.errors import SlurmFailed, WrongState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.simulation.rpc import open_call

if TYPE_CHECKING:
    from tests.simulation.world import World

_DRAIN = "/slurm_interleave.v1.Interleave/Drain"


class Saving:
    """Saves the processes of jobs, as slowly and as badly as the dice say. They stand still meanwhile."""

    def __init__(self, world: World) -> None:
        self._world = world

    def drain(self, node: str) -> None:
        """Be the operator who wants *node* empty."""
        self._world.happens("drain", node)
        request = pb.DrainRequest(node=node).SerializeToString()
        open_call(self._world.net, self._world.slurm.process, _DRAIN, request, None, ())

    def around(self, save: Callable[[Any, pb.Drain], Awaitable[pb.DrainUpdate]]) -> Any:
        """Return `Drains.save`, while which the job's process is stopped."""

        async def saves(drains: Any, order: pb.Drain) -> pb.DrainUpdate:
            run = self._world.slurm.runs.get(order.job_id)
            process = run.process if run is not None else None
            if run is None or process is None or not process.alive or process.stopped:
                return pb.DrainUpdate(job_id=order.job_id, error="no process")
            process.stop()
            try:
                update = await save(drains, order)
            finally:
                process.go_on()
            self._world.happens("saved" if update.ok else "not saved", order.job_id, update.error)
            return update

        return saves

    def root(self, job: str, _: int) -> int:
        """Return the job's process. Raises `WrongState`."""
        run = self._world.slurm.runs.get(job)
        if run is None or run.process is None or not run.process.alive:
            raise WrongState(f"job {job} has no process")
        return run.pid

    async def check(self) -> None:
        """Find that criu works."""

    async def dump(self, pid: int, folder: Path) -> None:
        """Write an image. Raises `WrongState`."""
        dice = self._world.dice
        await asyncio.sleep(dice.about(0.5))
        if dice.chance(0.3):
            raise WrongState("criu failed")
        (folder / "pages").write_text(str(pid))

    async def requeue(self, job: str) -> None:
        """Have Slurm start the job again, whose processes are on disk now. Raises `SlurmFailed`."""
        world, run = self._world, self._world.slurm.runs.get(job)
        await asyncio.sleep(world.dice.about(0.1))
        if run is None or world.dice.chance(0.1):
            raise SlurmFailed("slurmctld does not answer")
        world.observer.saved(job)
        world.slurm.requeue(run)

    def send(self, pid: int, number: signal.Signals) -> None:
        """Kill a job's process."""
        if number is signal.SIGKILL:
            self._world.clients[pid].kill()
