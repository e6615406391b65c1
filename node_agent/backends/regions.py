"""The backend for named copies of chosen device memory: the job stays on its devices.

A copy takes the place of an older one of its name, other names stand beside. So a process can keep several
versions of the same memory and swap them, as with adapters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from typing_extensions import override

from slurm_interleave.client.core.ranges import as_tags
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent.backends.channel import Channel, Channels
from slurm_interleave.node_agent.backends.protocol import Charge, CopiesRegions, Mover, Region, Target
from slurm_interleave.node_agent.contexts import Outcome


class RegionsMover(Mover):
    """Copies *regions* to the snapshot *name*, or back from it."""

    name: ClassVar[str] = "memory_regions"
    in_app: ClassVar[bool] = False
    in_place: ClassVar[bool] = True

    def __init__(self, copier: CopiesRegions, snapshot: str, regions: Sequence[Region]) -> None:
        self._copier = copier
        self.charge, self.can_spill = copier.charge, copier.can_spill
        self.copy_name = snapshot
        self.regions = regions

    @override
    async def snapshot(self, target: Target) -> Outcome:
        """Copy to host memory."""
        return self._refusal() or await self._copier.save_regions(target, self.copy_name, self.regions)

    @override
    async def restore(self, target: Target) -> Outcome:
        """Copy back."""
        return self._refusal() or await self._copier.load_regions(target, self.copy_name, self.regions)

    @override
    async def discard(self, target: Target) -> Outcome:
        """Do nothing: copies go with their job."""
        return Outcome(Context.NONE)

    @override
    def saved_size(self, _resident: int) -> int:
        """All regions."""
        return sum(region.size for region in self.regions)

    def _refusal(self) -> Outcome | None:
        if not self.regions:
            return Outcome(Context.RESIDENT, error="memory_regions: no regions are named")
        if any(region.size <= 0 for region in self.regions):
            return Outcome(Context.RESIDENT, error="memory_regions: a region has no bytes")
        return None


class ChannelRegions:
    """Has the ranks of a job copy their own memory: ranges go as tags of a command."""

    charge = Charge.JOB
    can_spill = False

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    async def save_regions(self, target: Target, name: str, regions: Sequence[Region]) -> Outcome:
        """Tell each rank to copy those of its process."""

        def command(tags: list[str]) -> v1.AgentCommand:
            return v1.AgentCommand(snapshot=v1.SnapshotCommand(mode=v1.SUSPEND_MODE_OFFLOAD, tags=tags))

        return await self._told(target, name, regions, command)

    async def load_regions(self, target: Target, name: str, regions: Sequence[Region]) -> Outcome:
        """Tell each rank to copy them back."""

        def command(tags: list[str]) -> v1.AgentCommand:
            return v1.AgentCommand(restore=v1.RestoreCommand(tags=tags))

        return await self._told(target, name, regions, command)

    async def _told(
        self,
        target: Target,
        name: str,
        regions: Sequence[Region],
        command: Callable[[list[str]], v1.AgentCommand],
    ) -> Outcome:
        by_rank: dict[Channel, list[Region]] = {}
        for region in regions:
            channel = self._channel(target.job, region.pid)
            if channel is None:
                error = f"job {target.job}: process {region.pid} has no workload channel"
                return Outcome(Context.RESIDENT, error=error)
            by_rank.setdefault(channel, []).append(region)
        answers = await asyncio.gather(
            *(
                channel.tell(
                    command(as_tags(name, [(each.address, each.size) for each in mine])),
                    target.deadline_s,
                    target.stop,
                )
                for channel, mine in by_rank.items()
            )
        )
        moved = sum(region.size for region in regions)
        return Outcome(Context.RESIDENT, moved, "; ".join(filter(None, (answer.error for answer in answers))))

    def _channel(self, job: str, pid: int) -> Channel | None:
        return next((each for each in self._channels.of(job) if each.speaker.pid == pid), None)
