"""A handover beside busy groups, without and with an operation of another group that does not end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import measures
from figures import Result, spread
from members import Channels, Job, Member, Node, fleet, nodes
from stand import Server

from slurm_interleave.client.wire import interleave_v1_pb2 as pb

_BUSY = 100
_BLOCKS = 5
_PHASE_S = 0.5  # what a busy job does with its turn
_STUCK = [Job(f"stuck-{number}", "stuck", 0) for number in range(2)]


class _Holding(Node):
    """A node whose agent, while it *holds*, ends no order."""

    def __init__(self, address: str) -> None:
        super().__init__(address, "stuck", _STUCK, 0.0)
        self.ordered = asyncio.Event()
        self.holds = False
        self._held: list[Any] = []

    async def _connect(self, stub: Any) -> None:
        self._stream = stub.Connect()
        jobs = [job.report(self._name, "none") for job in self._jobs]
        hello = pb.Hello(node=self._name, devices=[pb.Device(index=0)], jobs=jobs)
        await self._stream.write(pb.AgentMessage(hello=hello))
        while order := await self._stream.read():
            self.registered.set()
            self._held += order.operate
            if order.operate and not self.holds:
                await self.release()
            elif order.operate:
                self.ordered.set()

    async def release(self) -> None:
        """End what is held."""
        self.holds, held, self._held = False, self._held, []
        self.ordered.clear()
        await self._stream.write(pb.AgentMessage(done=map(self._done, held)))


class Stuck:
    """One orchestrator with a pair of jobs that is measured, the busy groups, and the group that hangs."""

    def __init__(self, server: Server) -> None:
        self._channels = Channels(server.address)
        self._node = _Holding(server.address)
        self._jobs = fleet(_BUSY + 1, 2)
        self._address = server.address

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Register all jobs; *stack* ends what is played here."""
        await stack.enter_async_context(nodes(self._address, self._jobs, 2))
        playing = asyncio.create_task(self._node.run())
        stack.callback(playing.cancel)
        await self._node.registered.wait()

    async def round(self, handovers: int) -> Result:
        """Measure without and with the operation, by turns; all else is the same."""
        alone: list[float] = []
        beside: list[float] = []
        async with self._busy():
            pair = [self._member(job) for job in self._jobs[:2]]
            for _ in range(_BLOCKS):
                alone += await measures.handovers(pair, handovers // _BLOCKS)
                async with self._operation():
                    beside += await measures.handovers(pair, handovers // _BLOCKS)
        figures = {"handover_beside_busy_us": spread(alone), "handover_beside_stuck_us": spread(beside)}
        ratio = figures["handover_beside_stuck_us"].p50 / figures["handover_beside_busy_us"].p50
        return {**figures, "handover_beside_stuck_ratio": ratio}

    def _member(self, job: Job) -> Member:
        return Member(self._channels.one(), job.job_id, job.group, job.token)

    @contextlib.asynccontextmanager
    async def _busy(self) -> AsyncIterator[None]:
        enough = asyncio.Event()
        members = map(self._member, self._jobs[2:])
        tasks = [asyncio.create_task(_take_turns(member, enough)) for member in members]
        try:
            yield
        finally:
            enough.set()
            await asyncio.gather(*tasks)

    @contextlib.asynccontextmanager
    async def _operation(self) -> AsyncIterator[None]:
        first, second = map(self._member, _STUCK)
        await first.yield_(await first.acquire())
        self._node.holds = True
        waiting = asyncio.create_task(second.acquire())
        await self._node.ordered.wait()
        try:
            yield
        finally:
            await self._node.release()
            await second.yield_(await waiting)


async def _take_turns(member: Member, enough: asyncio.Event) -> None:
    while not enough.is_set():
        epoch = await member.acquire()
        await asyncio.sleep(_PHASE_S)
        await member.yield_(epoch)
