"""Over the wire: what the caller of an acquire of several groups is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client


@pytest_asyncio.fixture
async def n2(client: Client, n1: FakeAgent) -> AsyncIterator[FakeAgent]:
    """A second node: job x has its trainer on n1 and its sampler here."""
    agent = await FakeAgent(client.address, "n2").connect()
    await n1.start("x", "trainer", 1)
    await agent.start("x", "sampler")
    yield agent
    await agent.close()


async def granted(client: Client, *groups: str) -> dict[str, int]:
    request = pb.AcquireRequest(job_id="x", group=groups[0], also=groups[1:])
    updates = [update async for update in client.ours.Acquire(request)]
    told = updates[-1].granted
    return {groups[0]: told.epoch, **{lease.group: lease.epoch for lease in told.also}}


async def test_each_epoch_is_told_with_its_group_also_of_what_is_held_already(
    client: Client, n2: FakeAgent
) -> None:
    first = await granted(client, "trainer")

    both = await granted(client, "trainer", "sampler")

    assert both["trainer"] == first["trainer"]
    assert both["sampler"] > first["trainer"]
    for group, epoch in both.items():
        await client.end("x", epoch, group)
    assert sorted((await granted(client, "sampler", "trainer")).values()) == [3, 4]


async def test_leases_that_were_not_asked_for_are_not_told(client: Client, n2: FakeAgent) -> None:
    await granted(client, "trainer")

    assert list(await granted(client, "sampler")) == ["sampler"]
