"""Over the wire: the jobs of a node are saved one after the other, those that hold nothing."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import grpc
import pytest

from slurm_interleave.client.connect import TOKEN_KEY
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client


def drain(client: Client, node: str = "n1", **call: Any) -> Any:
    return client.ours.Drain(pb.DrainRequest(node=node), **call)


async def test_each_job_that_holds_nothing_is_saved_by_its_agent(client: Client, n1: FakeAgent) -> None:
    await client.granted("b")
    updates = drain(client)

    first = await n1.drained(ok=True, bytes=5, seconds=0.5)
    a, b = await updates.read(), await updates.read()
    await n1.drained(error="criu is too old")
    c = await updates.read()

    assert (first.job_id, first.attempt) == ("a", "1")
    assert (a.job_id, a.ok, a.bytes) == ("a", True, 5)
    assert (b.job_id, b.ok) == ("b", False)
    assert "holds its devices now" in b.error
    assert (c.job_id, c.error) == ("c", "criu is too old")
    assert await updates.read() is grpc.aio.EOF


async def test_a_job_that_ends_while_another_is_saved_is_passed_over(client: Client, n1: FakeAgent) -> None:
    updates = drain(client)
    n1.drains.put_nowait(await asyncio.wait_for(n1.drains.get(), 30))  # it has begun
    await n1.end("b")
    await n1.start("z", "other", 3)  # that has been heard

    await n1.drained(ok=True)
    await n1.drained(ok=True)

    assert [(await updates.read()).job_id for _ in range(2)] == ["a", "c"]
    assert await updates.read() is grpc.aio.EOF


async def test_a_job_that_holds_devices_in_another_group_is_not_saved(client: Client, n1: FakeAgent) -> None:
    n2 = await FakeAgent(client.address, "n2").connect()
    await n2.start("x", "sampler")
    await n1.start("x", "trainer", 1)
    await client.granted("x", "trainer")

    [update] = [update async for update in drain(client, "n2")]

    assert (update.job_id, update.ok) == ("x", False)
    assert "holds its devices now" in update.error
    await n2.close()


async def test_a_job_whose_state_a_switch_moves_is_not_saved(client: Client, n1: FakeAgent) -> None:
    n2 = await FakeAgent(client.address, "n2").connect()
    for job in "de":
        await n2.start(job, "other")
    await client.granted("d", "other")
    await client.end("d", group="other")
    n2.hangs.add("d")
    waiting = asyncio.ensure_future(client.granted("e", "other"))
    order = await n2.next_order()

    updates = drain(client, "n2")
    moved, coming = await updates.read(), await updates.read()
    await n2.done(order)

    assert [moved.job_id, coming.job_id, order.job_id] == ["d", "e", "d"]
    assert "its device state is being moved for another job's turn" in moved.error
    assert "it holds its devices now" in coming.error
    assert (await waiting).epoch
    await n2.close()


async def test_a_job_that_is_on_another_node_too_is_not_saved(client: Client, n1: FakeAgent) -> None:
    n2 = await FakeAgent(client.address, "n2").connect()
    await n2.start("x", "sampler")
    await n1.start("x", "trainer", 1)

    [update] = [update async for update in drain(client, "n2")]

    assert (update.job_id, update.ok) == ("x", False)
    assert "it runs on node n1 too; one node alone cannot be saved" in update.error
    await n2.close()


async def test_a_job_gets_no_turn_while_it_is_saved_and_then_if_it_goes_on(
    client: Client, n1: FakeAgent
) -> None:
    updates = drain(client)
    n1.drains.put_nowait(await asyncio.wait_for(n1.drains.get(), 30))  # it has begun
    waiting = client.acquire("a")
    while not (place := (await waiting.read()).queued).reason:
        pass

    await n1.drained(error="criu is too old")

    assert place.reason == "the job's processes are being saved"
    assert not (await updates.read()).ok
    while not (update := await waiting.read()).HasField("granted"):
        pass
    assert update.granted.epoch


async def test_two_drains_of_a_node_save_each_job_once(client: Client, n1: FakeAgent) -> None:
    first, second = drain(client), drain(client)
    n1.drains.put_nowait(await asyncio.wait_for(n1.drains.get(), 30))  # one has begun
    other = await asyncio.wait(
        {asyncio.ensure_future(each.read()) for each in (first, second)},
        timeout=None,
        return_when=asyncio.FIRST_COMPLETED,
    )
    [at_once] = other[0]
    await n1.drained(error="criu is too old")
    [waited] = [await each for each in other[1]]
    first.cancel()
    second.cancel()

    assert (at_once.result().job_id, at_once.result().error) == ("a", "it is being saved already")
    assert (waited.job_id, waited.error) == ("a", "criu is too old")


async def test_a_job_that_could_not_be_saved_is_tried_again_by_the_next_drain(
    client: Client, n1: FakeAgent
) -> None:
    updates = drain(client)
    for _ in "abc":
        await n1.drained(error="criu is too old")
    before = [update.error async for update in updates]
    again = drain(client)
    order = await n1.drained(ok=True)

    assert before == ["criu is too old"] * 3
    assert (order.job_id, (await again.read()).ok) == ("a", True)


async def refused_at_last(client: Client, node: str) -> None:
    while True:
        await drain(client, node).read()


async def test_another_agent_that_goes_away_ends_no_drain(client: Client, n1: FakeAgent) -> None:
    n2 = await FakeAgent(client.address, "n2").connect()
    updates = drain(client)
    n1.drains.put_nowait(await asyncio.wait_for(n1.drains.get(), 30))

    await n2.close()
    with pytest.raises(grpc.aio.AioRpcError, match="agent is not connected"):
        await refused_at_last(client, "n2")  # that has been heard
    await n1.drained(ok=True)

    assert (await updates.read()).ok


async def test_an_agent_that_goes_away_meanwhile_is_named(client: Client, n1: FakeAgent) -> None:
    updates = drain(client)
    await asyncio.wait_for(n1.drains.get(), 30)

    await n1.close()

    assert "the agent of node n1 went away" in (await updates.read()).error


@pytest.mark.parametrize("cut", ["first", "never"], ids=["it is cut off first", "a new agent comes first"])
async def test_a_job_whose_agent_went_away_meanwhile_gets_its_turn_when_the_agent_is_back(
    client: Client, n1: FakeAgent, cut: str
) -> None:
    updates = drain(client)
    await asyncio.wait_for(n1.drains.get(), 30)
    waiting = client.acquire("a")
    while not (await waiting.read()).queued.reason:
        pass

    if cut == "first":
        await n1.close()
        assert "the agent of node n1 went away" in (await updates.read()).error
    again = FakeAgent(client.address, "n1")
    again.jobs = n1.jobs
    await again.connect()

    if cut == "never":
        assert "the agent of node n1 went away" in (await updates.read()).error
    while not (update := await waiting.read()).HasField("granted"):
        pass
    assert update.granted.epoch
    await again.close()


async def test_a_job_whose_agent_saves_on_after_a_cut_of_its_link_gets_no_turn_until_that_has_failed(
    client: Client, n1: FakeAgent
) -> None:
    updates = drain(client)
    await asyncio.wait_for(n1.drains.get(), 30)
    again = FakeAgent(client.address, "n1")
    again.jobs = n1.jobs
    again.jobs["a"].being_saved = True
    await again.connect()
    assert "the agent of node n1 went away" in (await updates.read()).error
    waiting = client.acquire("a")
    while not (place := (await waiting.read()).queued).reason:
        pass

    # A second drain meanwhile ends nothing.
    drain(client)
    await again.drained(error="it is being saved already", under_way=True)
    await again.start("z", "other", 3)  # it has been heard
    status = await client.ours.GetStatus(pb.StatusRequest(group="demo"))
    await again.fails_to_save("a")

    assert place.reason == "the job's processes are being saved"
    assert not [member for member in status.groups[0].members if member.epoch]
    while not (update := await waiting.read()).HasField("granted"):
        pass
    assert update.granted.epoch
    await again.close()


async def test_processes_that_come_back_may_act_by_the_token_that_they_know(
    client: Client, n1: FakeAgent
) -> None:
    old, fresh = "token of their first run", await n1.start("d", "other", 1)
    digest = hashlib.sha256(old.encode()).digest()
    before = await refused(client, old)
    await n1.start("d", "other", 1, resumed_token_sha256=digest)

    async def acquires(token: str) -> int:
        return (await client.granted("d", "other", metadata=((TOKEN_KEY, token),))).epoch

    assert before is grpc.StatusCode.UNAUTHENTICATED
    assert await acquires(old) == await acquires(fresh) == 1
    await n1.end("d")
    await n1.start("d", "other", 1, attempt="2")
    assert await refused(client, old) is grpc.StatusCode.UNAUTHENTICATED


async def refused(client: Client, token: str) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.granted("d", "other", metadata=((TOKEN_KEY, token),))
    return caught.value.code()


async def test_a_node_without_an_agent_is_refused(client: Client, n1: FakeAgent) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="agent is not connected"):
        await drain(client, "n9").read()


async def test_a_user_drains_no_node(client: Client, n1: FakeAgent) -> None:
    token = await n1.start("a")

    with pytest.raises(grpc.aio.AioRpcError, match="only root"):
        await drain(client, metadata=((TOKEN_KEY, token),)).read()
