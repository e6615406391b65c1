"""An orchestrator that does as the test says, on a real gRPC server; and a running agent to talk to."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as ts_rpc
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.protocol import Backend
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.state import State

OURS = f"{os.getpid()}000"  # no process of another test run on this host has this job id


class FakeOrchestrator(rpc.AgentLinkServicer, ts_rpc.TimeSliceOrchestratorServiceServicer):
    """Keeps what agents say, sends what the test wants, and answers the lock service as told."""

    def __init__(self) -> None:
        self.address = ""
        self.answers_registrations = True
        self.reservations: list[pb.Reservation] = []
        self.on_its_way: list[
            pb.Reservation
        ] = []  # sent before a question was heard, comes before its answer
        self.metadata: dict[str, str] = {}
        self.acquired = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.refuse_yield = False
        self.yields: asyncio.Queue[tuple[ts.YieldRequest, dict[str, str]]] = asyncio.Queue()
        self._said: asyncio.Queue[pb.AgentMessage] = asyncio.Queue()
        self._orders: asyncio.Queue[pb.AgentOrder] = asyncio.Queue()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        rpc.add_AgentLinkServicer_to_server(self, self._server)
        ts_rpc.add_TimeSliceOrchestratorServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(self.address or "127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def hears(self, kind: str) -> Any:
        """Return the next message of *kind*; others before it are dropped."""
        while True:
            message = await asyncio.wait_for(self._said.get(), 30)
            if message.WhichOneof("message") == kind:
                return getattr(message, kind)
            if kind == "done" and message.done:
                return message.done[0]

    def orders(self, **order: Any) -> None:
        self._orders.put_nowait(pb.AgentOrder(**order))

    async def asks(self, verb: str, job: str, operation: str, attempt: str = "") -> pb.OperationDone:
        """Send an operation and return its result."""
        self.operate(verb, job, operation, attempt)
        done: pb.OperationDone = await self.hears("done")
        assert done.operation_id == operation
        return done

    def operate(self, verb: str, job: str, operation: str, attempt: str = "") -> None:
        order = pb.Operate(operation_id=operation, verb=verb, job_id=job, attempt=attempt)
        self.orders(operate=[order])

    async def Connect(
        self, request_iterator: AsyncIterator[pb.AgentMessage], _context: Any
    ) -> AsyncIterator[pb.AgentOrder]:
        messages = aiter(request_iterator)
        first = await anext(messages)
        assert first.HasField("hello")
        self._said.put_nowait(first)
        yield pb.AgentOrder(welcome=pb.Welcome(cluster="test", reservations=self.reservations))
        reader = asyncio.create_task(self._read(messages))
        try:
            while not reader.done():
                order = asyncio.create_task(self._orders.get())
                try:
                    await asyncio.wait({order, reader}, return_when=asyncio.FIRST_COMPLETED)
                    if order.done():
                        yield order.result()
                finally:
                    order.cancel()
        finally:
            reader.cancel()

    def _tell_devices(self, asked: pb.JobStarting) -> None:
        for reservation in self.on_its_way:
            self.orders(reserve=reservation)
        known = [r for r in self.reservations if r.job_id == asked.job_id]
        if known:
            answer = pb.Reservation(question=asked.question)
            answer.MergeFrom(known[0])
            self.orders(reserve=answer)
        else:
            self.orders(forget=pb.Forget(job_id=asked.job_id, question=asked.question))

    async def _read(self, messages: AsyncIterator[pb.AgentMessage]) -> None:
        async for message in messages:
            for done in message.done:
                self._said.put_nowait(pb.AgentMessage(done=[done]))
            if not message.done:
                self._said.put_nowait(message)
            if message.HasField("starting"):
                self._tell_devices(message.starting)
            if message.HasField("started") and self.answers_registrations:
                started = message.started
                known = pb.Registered(job_id=started.job_id, attempt=started.attempt)
                self.orders(registered=known)

    async def Acquire(self, _request: ts.AcquireRequest, context: Any) -> ts.AcquireResponse:
        self.metadata = dict(context.invocation_metadata())
        self.acquired.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return ts.AcquireResponse(success=True, waited_ms=7)

    async def Yield(self, request: ts.YieldRequest, context: Any) -> ts.YieldResponse:
        self.yields.put_nowait((request, dict(context.invocation_metadata())))
        if self.refuse_yield:
            trailing = (("interleave-error", "NotTheHolder"),)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "job 18 holds it", trailing)
        return ts.YieldResponse(success=True, pending_waiters=3)


def config(folder: Path, orchestrator: str, **more: Any) -> AgentConfig:
    return AgentConfig(
        node="n1",
        orchestrator=orchestrator,
        run_dir=folder / "run",
        state_dir=folder / "state",
        auth="none",
        **more,
    )


@contextlib.asynccontextmanager
async def running(agent_config: AgentConfig, sim: SimConfig, backend: Backend) -> AsyncIterator[Agent]:
    """Run an agent in this event loop."""
    agent = Agent(agent_config, sim, backend, State(agent_config.state_dir))
    task = asyncio.create_task(agent.run())
    ready = asyncio.create_task(agent.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def hook(folder: Path, **request: Any) -> Mapping[str, Any]:
    """Say to the agent what a prolog or epilog says."""
    reader, writer = await asyncio.open_unix_connection(folder / "run" / "agent.sock")
    writer.write(json.dumps(request).encode() + b"\n")
    reply: dict[str, Any] = json.loads(await reader.readline())
    writer.close()
    await writer.wait_closed()
    return reply


async def start_job(folder: Path, job: str = "17", **more: Any) -> Mapping[str, Any]:
    request = {"uid": 0, "gid": 0, "user": "alice", "group": "demo", "devices": [0], **more}
    return await hook(folder, verb="job-start", job=job, **request)


def environment(folder: Path, job: str = "17") -> dict[str, str]:
    text = (folder / "run" / "jobs" / job / "environment").read_text()
    return dict(line.partition("=")[::2] for line in text.splitlines())


def device_of(sim: SimConfig, job: str = "17", index: int = 0) -> SimDevice:
    """Return a device as a process of *job* uses it."""
    return SimDevice(Arena.open(sim.directory), index, job)


async def until(sim: SimConfig, state: Context, job: str = "17") -> None:
    """Wait until the device state of *job* is *state*, by the devices' own word."""
    arena = Arena.open(sim.directory)

    def wait() -> None:
        limit = time.monotonic() + 30
        while arena.memory_of(job).context is not state:
            assert time.monotonic() < limit, f"job {job} is not {state.value} after 15 s"
            time.sleep(0.001)

    await asyncio.to_thread(wait)


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until it is so."""
    limit = time.monotonic() + 30
    for _ in itertools.count():
        if await look():
            return
        assert time.monotonic() < limit, "it is not so after 30 s"
        await asyncio.sleep(0.001)
