"""Over the wire: the exit from a fault, for the owner and for operators."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.connect import TOKEN_KEY
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.orchestrator.fake_agent import FakeAgent, agent
from tests.orchestrator.processes import daemon
from tests.orchestrator.serving import Client, eventually

LOST = {"context": "faulted", "fault": "the driver crashed"}


def clear(client: Client, job: str = "a", *, keep: bool = False, **call: Any) -> Any:
    return client.ours.Clear(pb.ClearRequest(job_id=job, group="demo", keep=keep), **call)


async def fault_of(client: Client, job: str = "a") -> str:
    [group] = (await client.status("demo")).groups
    [fault] = [member.fault for member in group.members if member.job_id == job]
    return str(fault)


async def test_a_faulted_job_is_cleared_and_acquires_again(client: Client, n1: FakeAgent) -> None:
    await n1.start("a", **LOST)
    waiting = client.acquire("b")
    assert "keeps device n1/0 until it ends or is cleared" in (await waiting.read()).queued.reason

    reply = await clear(client)

    assert [(one.node, list(one.devices), one.state) for one in reply.discarded] == [("n1", [0], "faulted")]
    assert await fault_of(client) == ""
    while not (update := await waiting.read()).HasField("granted"):
        pass
    assert update.granted.epoch
    await client.end("b")
    assert (await client.granted("a")).epoch > 0


async def test_a_node_that_cannot_discard_is_quoted_and_the_fault_stays(
    client: Client, n1: FakeAgent
) -> None:
    await n1.start("a", **LOST)
    n1.answers = False
    clearing = clear(client)
    order = await n1.next_order()
    await n1.done(order, ok=False, context="faulted", error="job a still works on its device")

    with pytest.raises(grpc.aio.AioRpcError, match=r"stays faulted: .*still works") as caught:
        await clearing

    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert await fault_of(client) == "the driver crashed"


async def test_a_caller_with_a_deadline_is_told_that_the_discard_goes_on(
    client: Client, n1: FakeAgent
) -> None:
    await n1.start("a", **LOST)
    n1.answers = False

    with pytest.raises(grpc.aio.AioRpcError, match=r"the discard goes on|Deadline") as caught:
        await clear(client, timeout=0.2)
    await n1.done(await n1.next_order())

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async def over() -> bool:
        return await fault_of(client) == ""

    await eventually(over)


async def test_a_job_clears_its_own_fault_and_no_other(client: Client, n1: FakeAgent) -> None:
    token = await n1.start("a", **LOST)
    await n1.start("b", **LOST)
    who = ((TOKEN_KEY, token),)

    await clear(client, "a", metadata=who)
    with pytest.raises(grpc.aio.AioRpcError, match="job b is not yours"):
        await clear(client, "b", metadata=who)

    assert await fault_of(client, "b")


async def test_what_is_cleared_stays_cleared_after_a_kill(tmp_path: Path) -> None:
    with daemon(tmp_path) as running:
        async with agent(running.address) as n1:
            await n1.start("a", **LOST)
            client = Client(running.address)
            await clear(client)
            await client.channel.close()
            running.end(signal.SIGKILL)
            running.start()
        async with agent(running.address) as n1:
            await n1.start("a")
            client = Client(running.address)

            assert await fault_of(client) == ""
            await client.channel.close()
