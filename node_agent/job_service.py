"""Our own service on a job's socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from slurm_interleave.client.connect import ERROR_KEY
from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.node_agent.drain import Drains
from slurm_interleave.node_agent.state import Job


class JobService(rpc.JobAgentServicer):
    """What one job may ask for itself."""

    def __init__(self, job: Job, drains: Drains) -> None:
        self._job = job
        self._drains = drains

    async def Resume(self, request: pb.ResumeRequest, context: Any) -> AsyncIterator[pb.ResumeUpdate]:
        """Bring back the processes that were saved."""
        try:
            async for update in self._drains.resume(self._job, request):
                yield update
        except InterleaveError as error:
            trailing = ((ERROR_KEY, type(error).__name__),)
            await context.abort(grpc.StatusCode[error.status], str(error), trailing)
