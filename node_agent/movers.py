"""Who moves a job's device state: what the job asked for, or what it registered, or the node's backend.

A job names its movers in the order of a snapshot, as in `app_channel+sim`. Who saved a context restores
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.core.names import excerpt
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent import endpoints
from slurm_interleave.node_agent.backends.app_channel import ChannelMover
from slurm_interleave.node_agent.backends.app_endpoint import EndpointMover
from slurm_interleave.node_agent.backends.channel import Channels
from slurm_interleave.node_agent.backends.combined import Combined
from slurm_interleave.node_agent.backends.protocol import Backend, CopiesRegions, Mover, Region
from slurm_interleave.node_agent.backends.refuses import Refuses
from slurm_interleave.node_agent.backends.regions import ChannelRegions, RegionsMover
from slurm_interleave.node_agent.endpoints import Endpoints
from slurm_interleave.node_agent.spill import RankSpill
from slurm_interleave.node_agent.state import Job

APPS = ("app_channel", "app_endpoint")


class Movers:
    """The movers of one node's jobs."""

    def __init__(
        self,
        backend: Backend,
        channels: Channels,
        job_of: Callable[[str], Job | None],
        spill: RankSpill | None = None,
    ) -> None:
        """*backend* is the node's own, *job_of* finds a job by its id, *spill* is the disk for its ranks."""
        self.backend = backend
        self._channels = channels
        self._job_of = job_of
        self._spill = spill

    def of(self, job_id: str, saved_by: str = "") -> Mover | None:
        """Return who saves a job's state; with *saved_by*, the one of this name. None: the node's backend."""
        names = saved_by or self._chosen(job_id)
        return self._named(names, job_id) if names and names != self.backend.name else None

    def asked(self, job: Job, config: v1.BackendConfig) -> Mover | None:
        """Return who is to move the state by a v1alpha1 request; None: whoever the job itself chose.

        Raises `WrongState` for one that is off on this node.
        """
        asked = config.WhichOneof("backend")
        if asked is None:
            return None
        if asked == "app_channel":
            wanted = config.app_channel
            spill = self._spill_of(job.job_id)
            return ChannelMover(self._channels, self.backend, wanted.mode, wanted.tags, spill=spill)
        if asked == "app_endpoint":
            return self._asked_endpoint(job, config.app_endpoint)
        if asked == "memory_regions":
            return self._regions(job, config.memory_regions)
        if asked == "cuda":
            return self._asked_cuda(job, config.cuda.explicit_target.pids)
        raise WrongState(f"backend {asked} is off on this node: [agent] backend = {self.backend.name!r}")

    def _asked_cuda(self, job: Job, pids: Sequence[int]) -> Mover:
        """Return the mover of the node's devices, whatever stands in for them."""
        if not pids:
            return self.backend
        chosen = ", ".join(map(str, pids))
        why = (
            f"cuda.explicit_target.pids = {chosen}: processes cannot be chosen here, since all of job "
            f"{job.job_id} are moved together, or none; leave explicit_target out, and they are found"
        )
        return Refuses("cuda", why)

    def _asked_endpoint(self, job: Job, config: v1.AppEndpointConfig) -> Mover:
        """Return the mover for the servers that a request names, or else those that the job registered."""
        try:
            named = _endpoints(config) if config.endpoints else job.endpoints
        except BadArgument as error:
            return Refuses("app_endpoint", str(error))
        if named is None:
            return Refuses("app_endpoint", _no_endpoints(job.job_id))
        job.endpoints = job.endpoints or named  # whoever saved restores
        if config.mode:
            named = replace(named, discard=config.mode == v1.SUSPEND_MODE_DISCARD)
        return EndpointMover(named, self.backend, config.tags)

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
        apps = ["app_endpoint"] if job.endpoints else []
        return "+".join([*apps, "app_channel"] if self._channels.of(job_id) else apps)

    def _named(self, names: str, job_id: str) -> Mover:
        parts = names.split("+")
        movers = [self._part(name, job_id, leaves_rest=name != parts[-1]) for name in parts]
        return movers[0] if len(movers) == 1 else Combined(movers)

    def _part(self, name: str, job_id: str, *, leaves_rest: bool) -> Mover:
        if name == "app_channel":
            spill = self._spill_of(job_id)
            return ChannelMover(self._channels, self.backend, leaves_rest=leaves_rest, spill=spill)
        if name == "app_endpoint":
            job = self._job_of(job_id)
            if job is None or job.endpoints is None:
                return Refuses(name, _no_endpoints(job_id))
            return EndpointMover(job.endpoints, self.backend, leaves_rest=leaves_rest)
        return self.backend

    def _spill_of(self, job_id: str) -> Callable[[], AbstractAsyncContextManager[Path]] | None:
        """Return what gives the job's ranks a folder on disk; None: there is none, or one cannot use it."""
        job, channels = self._job_of(job_id), self._channels.of(job_id)
        if self._spill is None or job is None or not all(each.speaker.spills for each in channels):
            return None
        return partial(self._spill.folder, job_id, job.request.uid, job.request.gid)


def _endpoints(config: v1.AppEndpointConfig) -> Endpoints:
    app = v1.App.Name(config.app).removeprefix("APP_").lower()
    discard = config.mode == v1.SUSPEND_MODE_DISCARD
    return endpoints.parse(app, list(config.endpoints), discard=discard)


def _no_endpoints(job_id: str) -> str:
    return f"job {job_id} has registered no servers; see INTERLEAVE_ENDPOINTS"


def parse_backend(text: str, node_backend: str) -> str:
    """Return what a job asks for: applications first, the node's own backend last. Raises `BadArgument`."""
    names = text.split("+") if text else []
    apps, known = names, (*APPS, node_backend)
    if names and names[-1] == node_backend:
        apps = names[:-1]
    if any(name not in APPS for name in apps) or len(set(apps)) != len(apps):
        raise BadArgument(
            f"backend {excerpt(text)} cannot be used on this node; known are {', '.join(known)}, "
            f"and {APPS[0]}+{node_backend} for one after the other"
        )
    return text
