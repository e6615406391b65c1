"""Nodes that are drained: what stands for criu, and for the processes that it saves."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_interleave.client.core.errors import SlurmFailed, WrongState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.waits import Stop
from tests.simulation.rpc import open_call

if TYPE_CHECKING:
    from tests.simulation.world import World

_DRAIN = "/slurm_interleave.v1.Interleave/Drain"


class Saving:
    """Saves the processes of jobs, as slowly and as badly as the dice say.

    They stand still from then on, also where the agent dies meanwhile, until somebody lets them go on.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def drain(self, node: str) -> None:
        """Be the operator who wants *node* empty."""
        self._world.happens("drain", node)
        request = pb.DrainRequest(node=node).SerializeToString()
        open_call(self._world.net, self._world.slurm.process, _DRAIN, request, None, ())

    def roots(self, job: str, _: int) -> list[int]:
        """Return the job's process. Raises `WrongState`."""
        run = self._world.slurm.runs.get(job)
        if run is None or run.process is None or not run.process.alive:
            raise WrongState(f"job {job} has no process")
        return [run.pid]

    async def check(self) -> None:
        """Find that criu works."""

    async def end(self, folder: Path) -> None:
        """Kill the criu of an agent that has died."""

    async def dump(self, pid: int, folder: Path, stop: Stop) -> None:
        """Write an image. Raises `WrongState`."""
        dice = self._world.dice
        self._world.clients[pid].stop()
        await asyncio.sleep(dice.about(0.5))
        if stop.is_set() or dice.chance(0.3):
            raise WrongState("criu failed")
        (folder / "pages").write_text(str(pid))

    async def requeue(self, job: str, _restarts: int | None) -> None:
        """Have Slurm start the job again, whose processes are on disk now. Raises `SlurmFailed`."""
        world, run = self._world, self._world.slurm.runs.get(job)
        await asyncio.sleep(world.dice.about(0.1))
        if run is None or world.dice.chance(0.1):
            raise SlurmFailed("slurmctld does not answer")
        world.happens("saved", job)
        world.observer.saved(job)
        world.slurm.requeue(run)

    def send(self, pid: int, number: signal.Signals) -> None:
        """Kill a job's process, or let it go on."""
        process = self._world.clients[pid]
        if number is signal.SIGKILL:
            process.kill()
        elif process.alive and process.stopped:
            self._world.happens("goes on", process.name)
            process.go_on()
