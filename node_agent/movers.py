"""Who moves a job's device state: what the job asked for, or what it registered, or the node's backend.

A job names its movers in the order of a snapshot, as in `app_channel+sim`. Who saved a context restores
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent.backends.app_channel import ChannelMover
from slurm_interleave.node_agent.backends.channel import Channels
from slurm_interleave.node_agent.backends.combined import Combined
from slurm_interleave.node_agent.backends.protocol import Backend, CopiesRegions, Mover, Region
from slurm_interleave.node_agent.backends.regions import ChannelRegions, RegionsMover
from slurm_interleave.node_agent.state import Job

APPS = ("app_channel",)


class Movers:
    """The movers of one node's jobs."""

    def __init__(self, backend: Backend, channels: Channels, job_of: Callable[[str], Job | None]) -> None:
        """*backend* is the node's own, *job_of* finds a job by its id."""
        self.backend = backend
        self._channels = channels
        self._job_of = job_of

    def of(self, job_id: str, saved_by: str = "") -> Mover | None:
        """Return who saves a job's state; with *saved_by*, the one of this name. None: the node's backend."""
        names = saved_by or self._chosen(job_id)
        return self._named(names) if names and names != self.backend.name else None

    def asked(self, job: Job, config: v1.BackendConfig) -> Mover | None:
        """Return who is to move the state by a v1alpha1 request; None: whoever the job itself chose.

        Raises `WrongState` for one that is off on this node.
        """
        asked = config.WhichOneof("backend")
        if asked is None:
            return None
        if asked == "app_channel":
            wanted = config.app_channel
            return ChannelMover(self._channels, self.backend, wanted.mode, wanted.tags)
        if asked == "memory_regions":
            return self._regions(job, config.memory_regions)
        if asked == "cuda" and not config.cuda.explicit_target.pids:
            return self.backend  # the node's devices, whatever stands in for them
        raise WrongState(f"backend {asked} is off on this node: [agent] backend = {self.backend.name!r}")

    def _regions(self, job: Job, config: v1.MemoryRegionsBackendConfig) -> Mover:
        regions = [Region(each.pid, each.address, each.size_bytes) for each in config.regions]
        copier: CopiesRegions | None = None
        if self._channels.of(job.job_id):
            copier = ChannelRegions(self._channels)
        elif hasattr(self.backend, "save_regions"):
            copier = cast("CopiesRegions", self.backend)
        if copier is None:
            raise WrongState(
                f"backend memory_regions is off on this node: [agent] backend = {self.backend.name!r} "
                "copies no ranges, and the job has no workload channel that could"
            )
        return RegionsMover(copier, config.snapshot_name or job.job_id, regions)

    def _chosen(self, job_id: str) -> str:
        job = self._job_of(job_id)
        if job is None or job.request.backend:
            return job.request.backend if job is not None else ""
        return "app_channel" if self._channels.of(job_id) else ""

    def _named(self, names: str) -> Mover:
        parts = names.split("+")
        movers = [self._part(name, leaves_rest=name != parts[-1]) for name in parts]
        return movers[0] if len(movers) == 1 else Combined(movers)

    def _part(self, name: str, *, leaves_rest: bool) -> Mover:
        if name == "app_channel":
            return ChannelMover(self._channels, self.backend, leaves_rest=leaves_rest)
        return self.backend


def parse_backend(text: str, node_backend: str) -> str:
    """Return what a job asks for: applications first, the node's own backend last. Raises `BadArgument`."""
    names = text.split("+") if text else []
    apps, known = names, (*APPS, node_backend)
    if names and names[-1] == node_backend:
        apps = names[:-1]
    if any(name not in APPS for name in apps) or len(set(apps)) != len(apps):
        raise BadArgument(
            f"backend {text!r} cannot be used on this node; known are {', '.join(known)}, "
            f"and {APPS[0]}+{node_backend} for one after the other"
        )
    return text
