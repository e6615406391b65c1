"""The stream that a node's agent holds."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.core.errors import Replaced
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.placement.plan import Node, Placement
from slurm_interleave.sql.rows import Key
from slurm_interleave.sql.store import Store
from tests.orchestrator.fake_agent import FakeAgent, agent
from tests.orchestrator.serving import Client, eventually, serving


async def test_the_welcome_names_the_cluster_and_the_reservations_of_the_node(
    orchestrator: Orchestrator, client: Client
) -> None:
    placement = Placement(job_id="17", group="demo", role="", nodes=("n1",), devices=(0, 2), lane="ilva")
    await orchestrator.reservations.record(placement)

    async with agent(client.address, "n1") as n1, agent(client.address, "n2") as n2:
        [reserved] = n1.welcome.reservations
        assert (reserved.job_id, reserved.group, list(reserved.devices)) == ("17", "demo", [0, 2])
        assert n1.welcome.cluster == "cluster"
        assert not n2.welcome.reservations


async def test_placement_hears_how_much_saved_state_a_node_can_take(
    orchestrator: Orchestrator, client: Client
) -> None:
    fake = FakeAgent(client.address)
    hello = fake.hello()
    hello.host_bytes = 2**40
    await fake.connect(hello=pb.AgentMessage(hello=hello))

    assert orchestrator.links.nodes() == [Node("n1", (0, 1, 2, 3), 2**40)]
    await fake.close()


@pytest.mark.parametrize(
    "first",
    [
        pb.AgentMessage(),
        pb.AgentMessage(hello=pb.Hello()),
        pb.AgentMessage(started=pb.JobReport(job_id="1", group="g")),
        pb.AgentMessage(hello=pb.Hello(node="n1", jobs=[pb.JobReport(job_id="1", group="bad name")])),
    ],
    ids=["empty", "no node", "no hello", "bad group"],
)
async def test_a_stream_that_begins_badly_is_refused_and_leaves_no_node(
    client: Client, first: pb.AgentMessage
) -> None:
    fake = FakeAgent(client.address)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await fake.connect(hello=first)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not (await client.status()).nodes
    await fake.close()


async def test_an_agent_that_comes_back_hears_its_orders_again(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")
    await client.unlock("a")
    n1.answers = False
    waiting = asyncio.ensure_future(client.lock("b"))
    order = await n1.next_order()
    await n1.close()

    await n1.connect()

    assert await n1.next_order() == order
    await n1.done(order)
    assert (await asyncio.wait_for(waiting, 30)).success


async def test_a_second_stream_of_a_node_ends_the_first(client: Client, n1: FakeAgent) -> None:
    again = FakeAgent(client.address)
    again.jobs = n1.jobs
    await again.connect()

    await n1.ended()

    [node] = (await client.status()).nodes
    assert node.connected
    await client.lock("a")
    await client.unlock("a")
    assert (await asyncio.wait_for(client.lock("b"), 30)).success
    assert [order.job_id for order in again.orders] == ["a"]
    await again.close()


async def test_a_node_whose_agent_is_gone_is_not_listed(client: Client, n1: FakeAgent) -> None:
    await n1.close()

    async def gone() -> bool:
        return not (await client.status()).nodes

    await eventually(gone)


async def test_a_job_that_the_returned_agent_does_not_name_is_over(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")
    waiting = asyncio.ensure_future(client.lock("b"))
    await client.waiting(1)
    await n1.close()
    del n1.jobs["a"]

    await n1.connect()

    assert (await asyncio.wait_for(waiting, 30)).success


async def test_an_agent_that_asks_is_told_the_devices_of_a_job_on_its_node(
    orchestrator: Orchestrator, n1: FakeAgent
) -> None:
    for job, node in (("17", "n1"), ("18", "n2")):
        place = Placement(job_id=job, group="demo", role="", nodes=(node,), devices=(2,), lane="ilva")
        await orchestrator.reservations.record(place)

    answers = [await n1.asks_for_devices(job) for job in ("17", "18", "19")]

    assert [answer.WhichOneof("order") for answer in answers] == ["reserve", "forget", "forget"]
    assert list(answers[0].reserve.devices) == [2]
    assert answers[1].forget.job_id == "18"


async def test_an_orchestrator_that_was_replaced_names_no_devices_which_may_be_those_of_the_run_before(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as one, agent(f"127.0.0.1:{one.port}", "n1") as n1:
        place = Placement(job_id="17", group="demo", role="", nodes=("n1",), devices=(2,), lane="ilva")
        await one.reservations.record(place)
        serve = next(task for task in asyncio.all_tasks() if task.get_name() == "arbiter")
        Store(f"sqlite:///{tmp_path}/orchestrator.db").close()

        asking = asyncio.create_task(n1.asks_for_devices("17"))

        with pytest.raises(Replaced):
            await asyncio.wait_for(asyncio.shield(serve), 30)
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


RUNS: dict[str, dict[str, Any]] = {
    "n1": {"attempt": "1", "restarts": 0, "started": 1e9},
    "n2": {"attempt": "2", "restarts": 1, "started": 2e9},
}


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
async def test_after_a_restart_an_agent_that_missed_an_epilog_does_not_end_the_job_s_next_run(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    async with serving(tmp_path) as one, agent(f"127.0.0.1:{one.port}", "n2") as n2:
        await n2.start("a", nodes=["n2"], **RUNS["n2"])
        await one.arbiter.acquire_lease("a", "demo")
    async with serving(tmp_path) as one, contextlib.AsyncExitStack() as stack:
        for node in order:
            fake = FakeAgent(f"127.0.0.1:{one.port}", node)
            known = {"job_id": "a", "group": "demo", "devices": [0], "context": "none", "nodes": [node]}
            fake.jobs["a"] = pb.JobReport(**known, **RUNS[node])
            stack.push_async_callback(fake.close)
            await fake.connect()
            if node == "n1":
                await fake.end("a")
            await fake.start("b", "other")  # all that it said before has been heard

        assert Key("a", "demo") in one.arbiter.core.state.leases


async def test_a_restore_is_ordered_with_its_snapshot_in_one_go(client: Client, n1: FakeAgent) -> None:
    for job in "ab":
        await client.lock(job)
        await client.unlock(job)
    n1.answers = False
    waiting = asyncio.ensure_future(client.lock("a"))
    await n1.next_order()

    save, load = await n1.next_order(), await n1.next_order()

    assert (save.verb, save.job_id) == (pb.Operate.SNAPSHOT, "b")
    assert (load.verb, load.job_id) == (pb.Operate.RESTORE, "a")
    assert list(load.after) == [save.operation_id]
    await n1.done(save)
    await n1.done(load)
    assert (await asyncio.wait_for(waiting, 30)).context_restored


async def test_the_moves_of_a_switch_go_in_one_message(client: Client, n1: FakeAgent) -> None:
    for job in "abab":
        await client.lock(job)
        await client.unlock(job)

    assert n1.messages == [1, 2, 2]


async def test_a_hello_that_a_later_one_has_overtaken_is_refused(client: Client, n1: FakeAgent) -> None:
    await n1.close()
    newer, older = n1.hello(), FakeAgent(n1.address).hello()
    newer.sent, older.sent = 2.0, 1.0
    await n1.connect(hello=pb.AgentMessage(hello=newer))
    killed = FakeAgent(n1.address)

    with pytest.raises(grpc.aio.AioRpcError, match="a later hello of its agent has come before"):
        await killed.connect(hello=pb.AgentMessage(hello=older))
    await killed.close()

    assert (await client.lock("a")).success
    await client.unlock("a")
    assert (await client.lock("b")).success, "its orders go to the newer stream"
