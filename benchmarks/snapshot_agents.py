"""What an agent adds to a snapshot and a restore, and what a second node costs, with real agents."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from measures import empty_call, timed
from members import channel
from stand import Broken, Stand

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import MIB
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

ANSWER_S = 60.0
_JOB = "1"
_SIM_MIB = 64
_SIM_GIB_S = 0.25  # as a bus has its own speed, whatever processor serves it


@dataclass
class Here:
    """Where this process listens."""

    address: str


class Orders(rpc.AgentLinkServicer):
    """Sends orders to agents and waits for their results."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._orders: dict[str, asyncio.Queue[pb.AgentOrder]] = {}
        self._results: dict[str, asyncio.Future[pb.OperationDone]] = {}

    def connected(self, node: str) -> asyncio.Queue[pb.AgentOrder]:
        """Return the queue of what is to be sent to *node*."""
        orders = self._orders[node] = asyncio.Queue()
        return orders

    async def ask(self, node: str, verb: str) -> pb.OperationDone:
        """Return the result of an order to *node*. Raises `Broken` if it failed, or none came."""
        operation = str(next(self._numbers))
        result = self._results[operation] = asyncio.get_running_loop().create_future()
        order = pb.Operate(operation_id=operation, verb=verb, job_id=_JOB)
        self._orders[node].put_nowait(pb.AgentOrder(operate=[order]))
        try:
            done: pb.OperationDone = await asyncio.wait_for(result, ANSWER_S)
        except asyncio.TimeoutError:
            raise Broken(f"{verb} on node {node}: its agent has not answered within {ANSWER_S} s") from None
        if not done.ok:
            raise Broken(f"{verb} on node {node}: {done.error}")
        return done

    async def Connect(
        self, request_iterator: AsyncIterator[pb.AgentMessage], _context: Any
    ) -> AsyncIterator[pb.AgentOrder]:
        messages = aiter(request_iterator)
        orders = self.connected((await anext(messages)).hello.node)
        yield pb.AgentOrder(welcome=pb.Welcome(cluster="bench"))
        reader = asyncio.create_task(self._read(messages, orders))
        try:
            while True:
                yield await orders.get()
        finally:
            reader.cancel()

    async def _read(
        self, messages: AsyncIterator[pb.AgentMessage], orders: asyncio.Queue[pb.AgentOrder]
    ) -> None:
        async for message in messages:
            for done in message.done:
                self._results.pop(done.operation_id).set_result(done)
            if message.HasField("started"):
                known = pb.Registered(job_id=message.started.job_id, attempt=message.started.attempt)
                orders.put_nowait(pb.AgentOrder(registered=known))


class Agents:
    """Real agents: `noop` for what they add, two with `sim` for two nodes."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self._orders = Orders()
        self._server = grpc.aio.server()

    async def start(self) -> None:
        """Start all, each with a job whose state is on its device."""
        server = self._server
        rpc.add_AgentLinkServicer_to_server(self._orders, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        here = Here(f"127.0.0.1:{port}")
        self._empty = channel((await self._stand.empty_server()).address)
        await self._stand.agent(here, [_JOB], node="noop")
        speed = f"snapshot_gib_s = {_SIM_GIB_S}\nrestore_gib_s = {_SIM_GIB_S}\n"
        for node in ("one", "two"):
            await self._stand.agent(here, [_JOB], backend="sim", node=node, sim=speed)
            device = SimDevice(Arena.open(self._stand.folder(node) / "sim"), 0, _JOB)
            device.put(np.zeros(_SIM_MIB * MIB, np.uint8))
        for node in ("noop", "one", "two"):
            await self._turn(node)

    async def stop(self) -> None:
        """Stop what this process plays."""
        await self._server.stop(0)

    async def round(self, calls: int) -> dict[str, float]:
        """Return seconds: an empty call, a snapshot and restore with noop, on one node, on two at once."""
        rtt, noop = [], []
        for _ in range(calls):
            rtt += await timed(empty_call(self._empty), 1)
            noop.append(await self._turn("noop"))
        alone = await self._turn("one")
        began = time.perf_counter()
        await asyncio.gather(self._turn("one"), self._turn("two"))
        both = time.perf_counter() - began
        middle = calls // 2
        return {
            "rtt_s": sorted(rtt)[middle] / 1e6,
            "noop_turn_s": sorted(noop)[middle],
            "one_node_s": alone,
            "two_nodes_s": both,
        }

    async def _turn(self, node: str) -> float:
        began = time.perf_counter()
        await self._orders.ask(node, "SNAPSHOT")
        await self._orders.ask(node, "RESTORE")
        return time.perf_counter() - began
