"""The backend for simulated devices; see `slurm_interleave.client.sim`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import ranges
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.errors import ChecksumMismatch, SimError
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.backends.protocol import (
    Backend,
    Charge,
    Device,
    Region,
    Target,
    User,
    in_thread,
)
from slurm_interleave.node_agent.contexts import Outcome, Seen


class SimBackend(Backend):
    """Moves buffers between the arenas of one node and host files."""

    name: ClassVar[str] = "sim"
    in_app: ClassVar[bool] = False
    charge = Charge.NODE

    def __init__(self, node: str, config: SimConfig, spill: Path | None = None) -> None:
        """Make the node's devices, or take those that are there. Raises `SimError`.

        *spill* is a folder, which is there, for what does not fit in host memory.
        """
        self._arena = Arena.open(config.directory, config)
        self._arena.spill = spill
        self.can_spill = spill is not None
        self._node = node
        self._count = config.devices

    @property
    def directory(self) -> Path:
        """The folder of the devices: INTERLEAVE_SIM_DIR of a job."""
        return self._arena.directory

    def devices(self) -> list[Device]:
        """Return the devices with their use."""
        size = self._arena.config.memory_bytes
        return [
            Device(index, f"SIM-{self._node}-{index}", self.name, size, self._arena.used_bytes(index))
            for index in range(self._count)
        ]

    def look(self, job: str) -> Seen | None:
        """Return what the table of allocations says."""
        memory = self._arena.memory_of(job)
        return Seen(memory.context, memory.saved_bytes or memory.resident_bytes, memory.spilled)

    @override
    def users(self) -> list[User]:
        """Return who works on the devices, and who has memory there, by the table of allocations."""
        working, holding = self._arena.users()
        users = [User(w.device, w.worker.pid, working=True, claims=w.job) for w in working]
        at_work = {(user.device, user.pid) for user in users}
        places = {(b.device, b.owner.pid): b.job for b in holding}
        return users + [
            User(*place, working=False, claims=job) for place, job in places.items() if place not in at_work
        ]

    @override
    async def recover(self, jobs: Sequence[str]) -> None:
        """Remove half-written copies."""
        self._arena.recover()
        ranges.recover(self._arena)

    async def close(self) -> None:
        """Do nothing: the devices are files."""

    async def snapshot(self, target: Target) -> Outcome:
        """Copy to host memory, free the device."""
        return await self._moved(target, partial(self._arena.snapshot, target.job, spilled=target.spill))

    async def restore(self, target: Target) -> Outcome:
        """Copy back if there is room."""
        return await self._moved(target, partial(self._arena.restore, target.job))

    async def discard(self, target: Target) -> Outcome:
        """Free all of it."""

        def work() -> Outcome:
            try:
                self._arena.discard(target.job, wait_s=target.deadline_s if target.living else None)
            except SimError as error:
                return Outcome(self._arena.memory_of(target.job).context, error=str(error))
            return Outcome(Context.NONE)

        return await in_thread(work)

    async def save_regions(self, target: Target, name: str, regions: Sequence[Region]) -> Outcome:
        """Copy ranges of buffers; see `client/sim/ranges.py` for their addresses."""
        return await self._moved(
            target,
            partial(self._copied, partial(ranges.save, spilled=target.spill), target.job, name, regions),
        )

    async def load_regions(self, target: Target, name: str, regions: Sequence[Region]) -> Outcome:
        """Copy them back. A broken copy loses nothing that is on the devices."""
        return await self._moved(target, partial(self._copied, ranges.load, target.job, name, regions))

    def _copied(
        self,
        copy: Callable[..., int],
        job: str,
        name: str,
        regions: Sequence[Region],
        deadline_s: float,
        stop: threading.Event,
    ) -> int:
        wanted = [ranges.Range(each.pid, each.address, each.size) for each in regions]
        try:
            return copy(self._arena, job, name, wanted, time.monotonic() + deadline_s, stop)
        except ChecksumMismatch as error:
            raise SimError(str(error)) from error

    async def _moved(self, target: Target, move: Callable[..., int]) -> Outcome:
        """Move, then say where the state is by looking, whatever happened."""

        def work() -> Outcome:
            try:
                moved = move(deadline_s=target.deadline_s, stop=target.stop)
            except ChecksumMismatch as error:
                return Outcome(Context.FAULTED, error=str(error))
            except SimError as error:
                return Outcome(self._arena.memory_of(target.job).context, error=str(error))
            return Outcome(self._arena.memory_of(target.job).context, moved)

        return await in_thread(work)
