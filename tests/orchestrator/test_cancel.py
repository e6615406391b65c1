"""Over the wire: operations are cancelled by operators, and their waiters stay in the queue."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from slurm_interleave.client.connect import TOKEN_KEY
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client


def cancel(client: Client, job: str = "a", **call: Any) -> Any:
    return client.ours.CancelOperation(pb.CancelOperationRequest(job_id=job, group="demo"), **call)


async def saving(client: Client, n1: FakeAgent) -> tuple[Any, pb.Operate]:
    """Let b wait while the agent saves a; return b's call, and the order that is not done."""
    await client.granted("a")
    await client.end("a")
    n1.answers = False
    waiting = client.acquire("b")
    return waiting, await n1.next_order()


async def test_who_cancels_is_told_where_the_state_is_when_the_agent_has_undone_it(
    client: Client, n1: FakeAgent
) -> None:
    waiting, order = await saving(client, n1)

    cancelling = cancel(client)
    told = await n1.next_cancel()
    await n1.done(order, ok=False, context="resident", error="cancelled")
    reply = await cancelling
    status = await client.status("demo")
    await n1.done(await n1.next_order())

    assert told == pb.Cancel(job_id="a", operation_id=order.operation_id)
    assert [(one.node, one.state) for one in reply.contexts] == [("n1", "resident")]
    [b] = [member for member in status.groups[0].members if member.job_id == "b"]
    assert (b.queue_place, [member.fault for member in status.groups[0].members]) == (1, ["", "", ""])
    while not (update := await waiting.read()).HasField("granted"):
        pass
    assert update.granted.epoch


async def test_who_cancels_what_does_not_end_is_told_so_at_his_deadline(
    client: Client, n1: FakeAgent
) -> None:
    await saving(client, n1)

    with pytest.raises(grpc.aio.AioRpcError, match=r"has not ended yet|Deadline") as caught:
        await cancel(client, timeout=0.3)

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_who_cancels_while_an_agent_is_away_is_told_that(client: Client, n1: FakeAgent) -> None:
    await saving(client, n1)
    await n1.close()

    with pytest.raises(grpc.aio.AioRpcError, match=r"agent of node n1 is away|Deadline") as caught:
        await cancel(client, timeout=0.3)

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_an_agent_of_a_release_that_knows_no_cancel_is_not_believed_to_heed_one(
    client: Client, n1: FakeAgent
) -> None:
    n1.cancels_moves = False
    await n1.close()
    await n1.connect()
    await saving(client, n1)

    with pytest.raises(grpc.aio.AioRpcError, match="node n1 is of a release that cannot cancel") as caught:
        await cancel(client)

    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_where_nothing_moves_the_agent_is_told_and_the_state_is_named(
    client: Client, n1: FakeAgent
) -> None:
    reply = await cancel(client)

    assert [(one.node, one.state) for one in reply.contexts] == [("n1", "none")]
    assert await n1.next_cancel() == pb.Cancel(job_id="a")


async def test_a_job_that_is_not_known_is_refused(client: Client, n1: FakeAgent) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cancel(client, "nobody")

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_user_cancels_nothing(client: Client, n1: FakeAgent) -> None:
    token = await n1.start("a")

    with pytest.raises(grpc.aio.AioRpcError, match="only root"):
        await cancel(client, metadata=((TOKEN_KEY, token),))
