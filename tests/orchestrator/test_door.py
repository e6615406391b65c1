"""A server that listens before its services are there, and agents that all come back at once."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

from slurm_interleave.client.answers import ErrorsToStatus
from slurm_interleave.client.core.errors import UnknownGroup
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as ts_rpc
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.door import Door
from slurm_interleave.orchestrator.services import agent_link
from slurm_interleave.orchestrator.services.agent_link import AgentLinkService
from slurm_interleave.orchestrator.services.convert import Hello


class Version(rpc.InterleaveServicer):
    async def GetStatus(self, request: Any, context: Any) -> pb.StatusReply:  # noqa: ARG002
        return pb.StatusReply(version="9")

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[pb.WatchUpdate]:  # noqa: ARG002
        yield pb.WatchUpdate(gone=[request.group])


class Echo(rpc.AgentLinkServicer):
    async def Connect(self, requests: Any, context: Any) -> AsyncIterator[pb.AgentOrder]:  # noqa: ARG002
        async for message in requests:
            yield pb.AgentOrder(welcome=pb.Welcome(cluster=message.hello.node))


class Locks(ts_rpc.TimeSliceOrchestratorServiceServicer):
    async def Acquire(self, request: ts.AcquireRequest, context: Any) -> ts.AcquireResponse:
        if request.group_id != "demo":
            raise UnknownGroup(f"group {request.group_id} is not known")
        return ts.AcquireResponse(success=context.time_remaining() is not None)


def add_services(door: Door) -> None:
    ours = ErrorsToStatus(door)
    rpc.add_InterleaveServicer_to_server(Version(), ours)
    rpc.add_AgentLinkServicer_to_server(Echo(), ours)
    ts_rpc.add_TimeSliceOrchestratorServiceServicer_to_server(Locks(), ours)
    health_pb2_grpc.add_HealthServicer_to_server(health_aio.HealthServicer(), door)


@pytest.fixture
async def early() -> AsyncIterator[tuple[Door, grpc.aio.Channel]]:
    """A door without services, that listens, and whose loop has turns."""
    door = Door("127.0.0.1:0")
    await door.open()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel:
            yield door, channel
    finally:
        await door.close()


async def seen(door: Door, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Wait until the loop has seen *count* calls."""
    came, service = asyncio.Semaphore(0), door.found

    async def found(details: Any) -> Any:
        came.release()
        return await service(details)

    monkeypatch.setattr(door, "found", found)
    for _ in range(count):
        await asyncio.wait_for(came.acquire(), 10)


async def test_calls_that_come_before_the_services_are_answered_by_them(
    early: tuple[Door, grpc.aio.Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    door, channel = early
    ours, locks = rpc.InterleaveStub(channel), ts_rpc.TimeSliceOrchestratorServiceStub(channel)
    watch = ours.Watch(pb.StatusRequest(group="demo"))
    link = rpc.AgentLinkStub(channel).Connect(iter([pb.AgentMessage(hello=pb.Hello(node="n1"))]))
    health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    status = ours.GetStatus(pb.StatusRequest())
    lock = locks.Acquire(ts.AcquireRequest(job_id="1", group_id="demo"), timeout=60)
    strange = locks.Acquire(ts.AcquireRequest(job_id="1", group_id="other"))
    unknown = ours.GetStatus(pb.StatusRequest())
    unnamed = channel.unary_unary("/no.such.Service/Call")(b"")
    await seen(door, monkeypatch, 8)

    add_services(door)
    door.serve()

    assert (await status).version == "9"
    assert [update.gone async for update in watch] == [["demo"]]
    assert [order.welcome.cluster async for order in link] == ["n1"]
    assert (await health.read()).status == health_pb2.HealthCheckResponse.SERVING
    assert (await lock).success
    assert await strange.code() is grpc.StatusCode.NOT_FOUND
    assert await strange.details() == "group other is not known"
    assert await unnamed.code() is grpc.StatusCode.UNIMPLEMENTED
    assert (await unknown).version == "9"


async def test_a_call_that_is_given_up_before_the_services_are_there_reaches_none(
    early: tuple[Door, grpc.aio.Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    door, channel = early
    call = ts_rpc.TimeSliceOrchestratorServiceStub(channel).Acquire(ts.AcquireRequest(), timeout=0.2)
    await seen(door, monkeypatch, 1)
    assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    add_services(door)
    door.serve()

    assert (await rpc.InterleaveStub(channel).GetStatus(pb.StatusRequest())).version == "9"


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


async def test_connections_leave_files_to_open_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (40, 40))
    door = Door("127.0.0.1:0")
    add_services(door)
    await door.open()
    door.serve()
    opened = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(50)]

    async def is_cut(reader: asyncio.StreamReader) -> bool:
        try:
            while await asyncio.wait_for(reader.read(4096), 1):
                pass  # what HTTP/2 begins with
        except asyncio.TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    try:
        cut = await asyncio.gather(*[is_cut(reader) for reader, _ in opened])
    finally:
        for _, writer in opened:
            writer.close()
        await door.close()

    assert cut.count(False) == 30
