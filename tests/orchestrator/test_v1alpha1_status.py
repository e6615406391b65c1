"""What the lock service of the v1alpha1 wire says of groups."""

from __future__ import annotations

import asyncio
import time

from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from tests.orchestrator.fake_agent import FakeAgent, agent
from tests.orchestrator.serving import Client, eventually

State = ts.GroupStatus.State


async def test_while_one_holds_and_another_waits_the_status_names_them(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")
    waiting = asyncio.ensure_future(client.lock("b"))
    await client.waiting(1)

    group = (await client.group()).group

    assert group.group_id == "demo"
    assert group.group_state == State.STATE_LOCKED
    assert (group.locking_job, group.loaded_job, group.waiter_queue_depth) == ("a", "a", 1)
    waiting.cancel()


async def test_the_timestamp_moves_only_with_the_state(client: Client, n1: FakeAgent) -> None:
    before = time.time()
    await client.lock("a")
    first = (await client.group()).group.state_timestamp
    assert before <= first.ToNanoseconds() / 1e9 <= time.time()

    waiting = asyncio.ensure_future(client.lock("b"))
    await client.waiting(1)
    await client.lock("a")
    assert (await client.group()).group.state_timestamp == first

    await client.unlock("a")
    await waiting
    assert (await client.group()).group.state_timestamp.ToNanoseconds() > first.ToNanoseconds()


async def test_there_is_one_row_for_each_job_and_node(client: Client, n1: FakeAgent) -> None:
    async with agent(client.address, "n2") as n2:
        await n1.start("wide", "big", 1, nodes=("n1", "n2"))
        await n2.start("wide", "big", 1, nodes=("n1", "n2"))
        await client.lock("wide", "big")

        rows = (await client.group("big")).agent_job_states

        running = ts.SnapshotAgentJobState.STATE_RUNNING
        assert [(row.agent, row.job_id, row.job_state) for row in rows] == [
            ("n1", "wide", running),
            ("n2", "wide", running),
        ]


async def test_an_agent_that_is_gone_makes_the_state_unknown(client: Client, n1: FakeAgent) -> None:
    assert (await client.group()).group.group_state == State.STATE_IDLE

    await n1.close()

    async def unknown() -> bool:
        return (await client.group()).group.group_state == State.STATE_UNKNOWN

    await eventually(unknown)


async def test_a_context_of_which_nobody_knows_where_it_is_has_its_row_too(
    client: Client, n1: FakeAgent
) -> None:
    await n1.start("d", context="saving")  # by an operation that nobody here has ordered

    rows = (await client.group()).agent_job_states

    row = ts.SnapshotAgentJobState
    states = [row.STATE_IDLE] * 3 + [row.STATE_UNSPECIFIED]
    assert [(row.job_id, row.job_state) for row in rows] == list(zip("abcd", states, strict=True))


async def test_groups_are_listed(client: Client, n1: FakeAgent) -> None:
    await n1.start("z", "another", 1)

    assert list((await client.v1.ListGroups(ts.ListGroupsRequest())).group_ids) == ["another", "demo"]
