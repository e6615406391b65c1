"""A real orchestrator in the test's own event loop, and what tests say to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.connect import open_aio_channel
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as ts_rpc
from slurm_interleave.orchestrator.config import OrchestratorConfig
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from slurm_interleave.orchestrator.web.config import WebConfig
from slurm_interleave.sql.store import Store

Code = grpc.StatusCode
LIMIT_S = 30.0


@contextlib.asynccontextmanager
async def serving(folder: Path, web: WebConfig | None = None, **config: Any) -> AsyncIterator[Orchestrator]:
    """Run an orchestrator on a free port of loopback, with its database in *folder*."""
    settings = {
        "listen": "127.0.0.1:0",
        "database": f"sqlite:///{folder}/orchestrator.db",
        "socket": folder / "interleaved.sock",
        "auth": "none",
        **config,
    }
    store = Store(settings["database"])
    orchestrator = Orchestrator(
        OrchestratorConfig(**settings), PlacementConfig(enabled=False), Rules(), store, web=web
    )
    task = asyncio.create_task(orchestrator.run())
    ready = asyncio.create_task(orchestrator.ready.wait())
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield orchestrator
    finally:
        ready.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        store.close()


class Client:
    """Both services over one channel."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = open_aio_channel(address)
        self.ours: Any = rpc.InterleaveStub(self.channel)
        self.v1: Any = ts_rpc.TimeSliceOrchestratorServiceStub(self.channel)

    def lock(self, job: str, group: str = "demo", **call: Any) -> Any:
        return self.v1.Acquire(ts.AcquireRequest(job_id=job, group_id=group), **call)

    def unlock(self, job: str, group: str = "demo", **call: Any) -> Any:
        return self.v1.Yield(ts.YieldRequest(job_id=job, group_id=group), **call)

    async def group(self, group: str = "demo") -> ts.GetGroupStatusResponse:
        return await self.v1.GetGroupStatus(ts.GetGroupStatusRequest(group_id=group))

    async def waiting(self, count: int, group: str = "demo") -> None:
        """Wait until *count* jobs wait in the queue."""

        async def so() -> bool:
            return (await self.group(group)).group.waiter_queue_depth == count

        await eventually(so)

    async def held_by(self, job: str, group: str = "demo") -> None:
        """Wait until *job* holds the devices; "": until nobody does or is about to."""

        async def so() -> bool:
            return (await self.group(group)).group.locking_job == job

        await eventually(so)

    def acquire(self, job: str, group: str = "demo", phase: str = "", **call: Any) -> Any:
        return self.ours.Acquire(pb.AcquireRequest(job_id=job, group=group, phase=phase), **call)

    async def granted(self, job: str, group: str = "demo", phase: str = "", **call: Any) -> pb.Granted:
        """Wait for the grant, to the end of the stream."""
        updates = [update async for update in self.acquire(job, group, phase, **call)]
        assert updates[-1].WhichOneof("update") == "granted"
        return updates[-1].granted

    async def end(self, job: str, epoch: int = 0, group: str = "demo", **call: Any) -> int:
        reply = await self.ours.Yield(pb.YieldRequest(job_id=job, group=group, epoch=epoch), **call)
        return int(reply.pending_waiters)

    async def status(self, group: str = "", **call: Any) -> pb.StatusReply:
        return await self.ours.GetStatus(pb.StatusRequest(group=group), **call)

    async def slices(self, metadata: Any = None, **wanted: Any) -> list[pb.Slice]:
        pages = self.ours.ListSlices(pb.ListSlicesRequest(**wanted), metadata=metadata)
        return [row async for page in pages for row in page.slices]

    async def days(self, metadata: Any = None, **wanted: Any) -> list[pb.DaySum]:
        request = pb.ListSlicesRequest(summed=True, **wanted)
        return [day async for page in self.ours.ListSlices(request, metadata=metadata) for day in page.days]


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it is so."""
    limit = time.monotonic() + LIMIT_S
    for _ in itertools.count():
        if await look():
            return
        assert time.monotonic() < limit, f"it is not so after {LIMIT_S} s"
        await asyncio.sleep(0.002)


async def code_of(call: Any) -> Code:
    """Return how *call* is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()
