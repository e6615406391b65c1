"""Both ends of the orchestrator, played here: jobs that take turns, and nodes whose agents answer at once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from slurm_interleave.client.connect import CHANNEL_OPTIONS, TOKEN_KEY
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.node_agent.link import back_offs

_CHANNELS = 8
_DEVICES = 8  # of a node
_DEVICE_BYTES, _CONTEXT_BYTES = 8 << 30, 2 << 30  # a device has room for the contexts of two jobs
_ACCOUNTS = 10


def channel(address: str) -> Any:
    """Return a channel with a connection of its own."""
    return grpc.aio.insecure_channel(
        address, options=(*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    )


class Channels:
    """Some connections, shared by many jobs."""

    def __init__(self, address: str) -> None:
        self._all = [channel(address) for _ in range(_CHANNELS)]
        self._next = 0

    def one(self) -> Any:
        """Return the next in turn."""
        self._next += 1
        return self._all[self._next % _CHANNELS]


class Member:
    """One job of a group; it calls as the client library does."""

    def __init__(self, connection: Any, job_id: str, group: str, token: str) -> None:
        self._job_id, self._group = job_id, group
        self._stub = rpc.InterleaveStub(connection)
        self._check = health_pb2_grpc.HealthStub(connection).Check
        self._metadata = ((TOKEN_KEY, token),)

    async def settle(self) -> None:
        """Return when the orchestrator has taken what this job sent before."""
        for _ in range(2):
            await self._check(health_pb2.HealthCheckRequest())

    async def acquire(self) -> int:
        """Wait for the devices, to the end of the call; return the lease's epoch."""
        request = pb.AcquireRequest(job_id=self._job_id, group=self._group, phase="step", patience_s=1)
        epoch = (await self._stub.AcquireSoon(request, metadata=self._metadata)).granted.epoch
        if epoch:
            return int(epoch)
        call = self._stub.Acquire(request, metadata=self._metadata)
        while (update := await call.read()) is not grpc.aio.EOF:
            epoch = update.granted.epoch
        if not epoch:
            raise AssertionError(f"an acquire of job {self._job_id} ended without a grant")
        return int(epoch)

    def yield_(self, epoch: int) -> Awaitable[Any]:
        """End the lease: the call is on its way at once."""
        request = pb.YieldRequest(job_id=self._job_id, group=self._group, epoch=epoch)
        call: Awaitable[Any] = self._stub.Yield(request, metadata=self._metadata)
        return call


@dataclass(frozen=True)
class Job:
    """A job on a node that is played here."""

    job_id: str
    group: str
    device: int
    number: int = 0  # in its group

    @property
    def token(self) -> str:
        """Its token."""
        return f"token-of-{self.job_id}"

    def report(self, node: str, context: str) -> pb.JobReport:
        """Return what its node's agent says of it."""
        return pb.JobReport(
            job_id=self.job_id,
            attempt="1",
            user="bench",
            account=f"account-{self.number % _ACCOUNTS}",
            priority=1 + self.number,
            group=self.group,
            backend="noop",
            devices=[self.device],
            context=context,
            token_sha256=hashlib.sha256(self.token.encode()).digest(),
            nodes=[node],
        )


def fleet(groups: int, members: int) -> list[Job]:
    """Return the jobs of *groups* groups, each on a device of its own."""
    return [
        Job(f"{group}-{member}", f"g{group}", group % _DEVICES, member)
        for group in range(groups)
        for member in range(members)
    ]


class Node:
    """A node's agent: registers its jobs at each connect and says of each move that it is done.

    A move takes *move_s* seconds, those of one message one after the other.
    """

    def __init__(self, address: str, name: str, jobs: Sequence[Job], move_s: float) -> None:
        self._address, self._name, self._jobs, self._move_s = address, name, jobs, move_s
        self._contexts: dict[str, str] = {}
        self._welcome = False
        self.registered = asyncio.Event()

    async def run(self) -> None:
        """Keep the stream open until cancelled, and open it anew as `interleave-agent` does."""
        waits = back_offs()
        while True:
            async with channel(self._address) as connection:
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await self._connect(rpc.AgentLinkStub(connection))
            if self._welcome:
                self._welcome, waits = False, back_offs()
            await asyncio.sleep(next(waits))

    async def _connect(self, stub: Any) -> None:
        stream = stub.Connect()
        devices = [pb.Device(index=index, memory_bytes=_DEVICE_BYTES) for index in range(_DEVICES)]
        jobs = [job.report(self._name, self._contexts.get(job.job_id, "none")) for job in self._jobs]
        await stream.write(pb.AgentMessage(hello=pb.Hello(node=self._name, devices=devices, jobs=jobs)))
        while (order := await stream.read()) is not grpc.aio.EOF:
            if order.HasField("welcome"):
                self._welcome = True
                self.registered.set()
            if order.operate:
                if self._move_s:
                    await asyncio.sleep(self._move_s * len(order.operate))
                await stream.write(pb.AgentMessage(done=map(self._done, order.operate)))

    def _done(self, operate: pb.Operate) -> pb.OperationDone:
        context = "resident" if operate.verb == pb.Operate.RESTORE else "saved"
        self._contexts[operate.job_id] = context
        return pb.OperationDone(
            operation_id=operate.operation_id,
            job_id=operate.job_id,
            ok=True,
            context=context,
            bytes=_CONTEXT_BYTES,
            seconds=self._move_s,
        )


@contextlib.asynccontextmanager
async def nodes(address: str, jobs: Sequence[Job], members: int, move_s: float = 0.0) -> AsyncIterator[None]:
    """Run the agents of all nodes that *jobs* of :func:`fleet`, in groups of *members*, need."""
    step = _DEVICES * members
    parts = [jobs[first : first + step] for first in range(0, len(jobs), step)]
    agents = [Node(address, f"f{number}", part, move_s) for number, part in enumerate(parts)]
    tasks = [asyncio.create_task(agent.run()) for agent in agents]
    try:
        await asyncio.gather(*(agent.registered.wait() for agent in agents))
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
