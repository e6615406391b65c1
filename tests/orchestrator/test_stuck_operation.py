"""The trouble of one group delays no other."""

from __future__ import annotations

import asyncio

import pytest

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client

GROUPS, TURNS = 100, 3


async def take_turns(client: Client, group: str, job: str) -> None:
    for _ in range(TURNS):
        lease = await client.granted(job, group)
        await client.end(job, lease.epoch, group)


@pytest.mark.timeout(120)
async def test_an_operation_that_hangs_holds_up_its_own_group_alone(client: Client, n1: FakeAgent) -> None:
    """All groups are on the same node, whose agent never ends the operation until the test says so."""
    members = [(f"g{number}", f"{number}-{job}") for number in range(GROUPS) for job in "xy"]
    for number, (group, job) in enumerate(members):
        await n1.start(job, group, 1 + number // 2)
    n1.hangs.add("a")
    await client.lock("a")
    await client.unlock("a")
    waiting = asyncio.ensure_future(client.lock("b"))
    stuck = await n1.next_order()
    assert (stuck.verb, stuck.job_id) == (pb.Operate.SNAPSHOT, "a")

    await asyncio.gather(*(take_turns(client, group, job) for group, job in members))

    assert not waiting.done()
    slices = [row for row in await client.slices() if row.group != "demo"]
    assert len(slices) == len(members) * TURNS
    assert sum(row.switched for row in slices) >= GROUPS, "each group has changed hands"
    await n1.done(stuck)
    assert (await asyncio.wait_for(waiting, 30)).success
