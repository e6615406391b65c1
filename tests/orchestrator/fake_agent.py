"""An agent that does as the test says, on a real stream to the orchestrator."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from slurm_interleave.client.connect import open_aio_channel
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

_MADE = {
    pb.Operate.SNAPSHOT: Context.SAVED,
    pb.Operate.RESTORE: Context.RESIDENT,
    pb.Operate.DISCARD: Context.NONE,
}
WAIT_S = 30.0


class FakeAgent:
    """Holds jobs of one node and answers orders at once and well, unless *answers* is off."""

    def __init__(self, address: str, node: str = "n1", metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self.address, self.node, self.metadata = address, node, metadata
        self.jobs: dict[str, pb.JobReport] = {}
        self.answers = True
        self.hangs: set[str] = set()  # jobs whose operations do not end
        self.orders: list[pb.Operate] = []
        self.messages: list[int] = []  # how many orders came in each
        self.ordered: asyncio.Queue[pb.Operate] = asyncio.Queue()
        self.stops: asyncio.Queue[pb.Stop] = asyncio.Queue()
        self.cancels: asyncio.Queue[pb.Cancel] = asyncio.Queue()
        self.drains: asyncio.Queue[pb.Drain] = asyncio.Queue()
        self.devices: asyncio.Queue[pb.AgentOrder] = asyncio.Queue()
        self.trespass = "warn"
        self.cancels_moves = True
        self.welcome = pb.Welcome()
        self._after: dict[str, bool] = {}
        self._registered: dict[str, asyncio.Event] = {}
        self._stream: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._channel: grpc.aio.Channel | None = None

    async def connect(self, *, hello: pb.AgentMessage | None = None) -> FakeAgent:
        """Open the stream; return when the orchestrator has welcomed."""
        self._channel = open_aio_channel(self.address)
        stub = rpc.AgentLinkStub(self._channel)
        self._stream = stub.Connect(metadata=self.metadata)  # type: ignore[arg-type]
        await self._stream.write(hello or pb.AgentMessage(hello=self.hello()))
        first = await asyncio.wait_for(self._stream.read(), WAIT_S)
        if first is grpc.aio.EOF:
            raise ConnectionError(await self._stream.details())
        assert first.WhichOneof("order") == "welcome"
        self.welcome = first.welcome
        self._reader = asyncio.create_task(self._read())
        return self

    async def close(self) -> None:
        """Break the stream."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._stream is not None:
            self._stream.cancel()
        if self._channel is not None:
            await self._channel.close()

    async def ended(self) -> None:
        """Wait until the orchestrator has ended the stream."""
        assert self._reader is not None
        await asyncio.wait_for(asyncio.shield(self._reader), WAIT_S)

    def hello(self) -> pb.Hello:
        devices = [pb.Device(index=index, uuid=f"SIM-{self.node}-{index}") for index in range(4)]
        return pb.Hello(
            node=self.node,
            version="test",
            devices=devices,
            jobs=self.jobs.values(),
            trespass=self.trespass,
            cancels=self.cancels_moves,
        )

    async def start(self, job: str, group: str = "demo", *devices: int, **more: Any) -> str:
        """Start a job, on device 0 if the test names none; return its token when it is registered."""
        token = f"token-{job}-{self.node}"
        report = {
            "job_id": job,
            "group": group,
            "attempt": "1",
            "devices": devices or (0,),
            "context": "none",
            "user": "alice",
            "uid": 1000,
            "token_sha256": hashlib.sha256(token.encode()).digest(),
            **more,
        }
        known = self._registered[job] = asyncio.Event()
        self.jobs[job] = pb.JobReport(**report)
        await self._stream.write(pb.AgentMessage(started=self.jobs[job]))
        await asyncio.wait_for(known.wait(), WAIT_S)
        return token

    async def end(self, job: str) -> None:
        attempt = self.jobs.pop(job).attempt
        await self._stream.write(pb.AgentMessage(over=pb.JobOver(job_id=job, attempt=attempt)))

    async def done(self, order: pb.Operate, **said: Any) -> None:
        """Say how an order ended; without more: well."""
        result = {"ok": True, "context": _MADE[order.verb].value, "bytes": 1024, "seconds": 0.01, **said}
        if order.job_id in self.jobs:
            self.jobs[order.job_id].context = result["context"]
        self._after[order.operation_id] = result["ok"]
        done = pb.OperationDone(operation_id=order.operation_id, job_id=order.job_id, **result)
        await self._stream.write(pb.AgentMessage(done=[done]))

    async def sees(self, *uses: pb.Use) -> None:
        """Say who uses the devices now."""
        await self._stream.write(pb.AgentMessage(uses=pb.Uses(uses=uses)))

    async def drained(self, **said: Any) -> pb.Drain:
        """Wait for the next order to save a job, and say how it went."""
        order = await asyncio.wait_for(self.drains.get(), WAIT_S)
        update = pb.DrainUpdate(job_id=order.job_id, **said)
        await self._stream.write(pb.AgentMessage(drained=update))
        return order

    async def fails_to_save(self, job: str) -> None:
        """Say that a drain ended badly, whoever has asked for it."""
        await self._stream.write(pb.AgentMessage(drained=pb.DrainUpdate(job_id=job, error="criu is too old")))

    async def asks_for_devices(self, job: str) -> pb.AgentOrder:
        """Say that a prolog runs, and return what is answered."""
        await self._stream.write(pb.AgentMessage(starting=pb.JobStarting(job_id=job)))
        return await asyncio.wait_for(self.devices.get(), WAIT_S)

    async def next_stop(self) -> pb.Stop:
        return await asyncio.wait_for(self.stops.get(), WAIT_S)

    async def next_cancel(self) -> pb.Cancel:
        return await asyncio.wait_for(self.cancels.get(), WAIT_S)

    async def next_order(self) -> pb.Operate:
        return await asyncio.wait_for(self.ordered.get(), WAIT_S)

    async def _read(self) -> None:
        waiting: deque[pb.Operate] = deque()
        with contextlib.suppress(grpc.aio.AioRpcError):
            while (order := await self._stream.read()) is not grpc.aio.EOF:
                if order.HasField("registered"):
                    self._registered[order.registered.job_id].set()
                if order.HasField("drain"):
                    self.drains.put_nowait(order.drain)
                if order.HasField("reserve") or order.HasField("forget"):
                    self.devices.put_nowait(order)
                if order.HasField("stop"):
                    self.stops.put_nowait(order.stop)
                if order.HasField("cancel"):
                    self.cancels.put_nowait(order.cancel)
                await self._take(order.operate, waiting)

    async def _take(self, orders: Sequence[pb.Operate], waiting: deque[pb.Operate]) -> None:
        if orders:
            self.messages.append(len(orders))
        for operate in orders:
            self.orders.append(operate)
            self.ordered.put_nowait(operate)
            if operate.job_id not in self.hangs:
                waiting.append(operate)
            while self.answers and waiting:
                await self.done(waiting.popleft())


@contextlib.asynccontextmanager
async def agent(address: str, node: str = "n1", **more: Any) -> AsyncIterator[FakeAgent]:
    """A connected agent."""
    fake = FakeAgent(address, node, **more)
    try:
        yield await fake.connect()
    finally:
        await fake.close()


async def refusal(address: str, metadata: tuple[tuple[str, str], ...]) -> grpc.StatusCode:
    """Return how a stream is refused to whoever may not be an agent, before he has said a word."""
    async with open_aio_channel(address) as channel:
        stream: Any = rpc.AgentLinkStub(channel).Connect(metadata=metadata)
        code: grpc.StatusCode = await asyncio.wait_for(stream.code(), WAIT_S)
        return code
