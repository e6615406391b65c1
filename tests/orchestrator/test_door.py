"""A server that listens before its services are there, and agents that all come back at once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.door import Door
from slurm_interleave.orchestrator.services import agent_link
from slurm_interleave.orchestrator.services.agent_link import AgentLinkService
from slurm_interleave.orchestrator.services.convert import Hello


class Version(rpc.InterleaveServicer):
    async def GetStatus(self, request: Any, context: Any) -> pb.StatusReply:  # noqa: ARG002
        return pb.StatusReply(version="9")


@pytest.mark.parametrize("method", ["GetStatus", "Watch"])
async def test_who_comes_before_the_services_is_told_to_try_again(method: str) -> None:
    door = Door("127.0.0.1:0")
    await door.open()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel:
            call = getattr(rpc.InterleaveStub(channel), method)(pb.StatusRequest())

            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert "just been started" in await call.details()
    finally:
        await door.close()


async def test_a_call_that_comes_while_a_start_keeps_the_loop_is_answered_when_it_is_over() -> None:
    door, asked, replies = Door("127.0.0.1:0"), threading.Event(), list[pb.StatusReply]()

    def ask() -> None:
        with grpc.insecure_channel(f"127.0.0.1:{door.port}") as channel:
            grpc.channel_ready_future(channel).result(10)
            pending = rpc.InterleaveStub(channel).GetStatus.future(pb.StatusRequest(), timeout=10)
            asked.set()
            replies.append(pending.result())

    await door.open()
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        assert asked.wait(10)  # without a turn of the loop, as while modules and rows are loaded
        rpc.add_InterleaveServicer_to_server(Version(), door)
        door.serve()
        await asyncio.to_thread(asking.join)
    finally:
        await door.close()

    assert [reply.version for reply in replies] == ["9"]


async def test_of_agents_that_speak_at_once_the_loop_takes_one_a_turn(
    orchestrator: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = orchestrator.arbiter, orchestrator._gate, orchestrator.links, orchestrator.reservations
    service, speak, taken = AgentLinkService(*parts, "cluster"), asyncio.Event(), list[int]()
    loop, turn, of_wire = asyncio.get_running_loop(), 0, agent_link.hello_of

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    def hello_of(said: pb.Hello) -> Hello:
        taken.append(turn)
        return of_wire(said)

    async def messages(node: str) -> AsyncIterator[pb.AgentMessage]:
        await speak.wait()
        yield pb.AgentMessage(hello=pb.Hello(node=node))
        await asyncio.Event().wait()

    async def first_order(node: str) -> pb.AgentOrder:
        context = SimpleNamespace(invocation_metadata=tuple)
        async with contextlib.aclosing(service.Connect(messages(node), context)) as orders:
            return await anext(orders)

    monkeypatch.setattr(agent_link, "hello_of", hello_of)
    loop.call_soon(count)
    connecting = [asyncio.create_task(first_order(f"n{number}")) for number in range(20)]
    await asyncio.sleep(0)
    speak.set()

    assert all(order.HasField("welcome") for order in await asyncio.gather(*connecting))
    assert len(taken) == 20
    assert len(set(taken)) == 20
