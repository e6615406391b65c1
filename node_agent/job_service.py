"""Our own service on a job's socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.node_agent import endpoints
from slurm_interleave.node_agent.attendance import Register
from slurm_interleave.node_agent.drain import Drains
from slurm_interleave.node_agent.idleness import idle_times
from slurm_interleave.node_agent.movers import Movers
from slurm_interleave.node_agent.state import Job, State


class JobService(rpc.JobAgentServicer):
    """What one job may ask for itself."""

    def __init__(self, job: Job, state: State, drains: Drains, register: Register, movers: Movers) -> None:
        self._job = job
        self._state = state
        self._drains = drains
        self._register = register
        self._movers = movers
        self._watcher = object()
        self._looking = asyncio.Lock()

    async def Attend(self, request: pb.AttendRequest, _context: Any) -> pb.AttendReply:
        """Take the word of a process that it takes turns."""
        self._register.attend(self._job, request.pid)
        return pb.AttendReply()

    async def WatchIdle(self, _request: pb.WatchIdleRequest, _context: Any) -> AsyncIterator[pb.IdleUpdate]:
        """Tell for how long the job has not used its devices: the one who asked last, in place of others."""
        watcher = self._watcher = object()
        async with contextlib.aclosing(idle_times(self._job, self._movers)) as times:
            while True:
                async with self._looking:  # each look takes a process, so a job has one at a time
                    if self._watcher is not watcher:
                        raise WrongState(
                            f"job {self._job.job_id}: another process of it watches for idle devices since; "
                            "give --idle-yield to one `interleave run` of a job"
                        )
                    idle_s = await anext(times)
                yield pb.IdleUpdate(idle_s=idle_s)

    async def RegisterEndpoints(
        self, request: pb.RegisterEndpointsRequest, _context: Any
    ) -> pb.RegisterEndpointsReply:
        """Remember the servers that hold the job's device state."""
        urls = list(request.urls)
        self._job.endpoints = endpoints.parse(request.app, urls, discard=request.discard) if urls else None
        self._state.save()
        return pb.RegisterEndpointsReply()

    async def Resume(self, request: pb.ResumeRequest, _context: Any) -> AsyncIterator[pb.ResumeUpdate]:
        """Bring back the processes that were saved."""
        async with contextlib.aclosing(self._drains.resume(self._job, request)) as updates:
            async for update in updates:
                yield update
