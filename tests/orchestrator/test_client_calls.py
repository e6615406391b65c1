"""The client's calls against a real orchestrator, as far as fakes could be wrong about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from slurm_interleave.client import AsyncInterleaver, Deadlock, Interleaver
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.sql.rows import Key
from tests.orchestrator.fake_agent import FakeAgent, agent
from tests.orchestrator.serving import Client, eventually


def job(name: str, address: str, group: str = "demo", node: str = "n1") -> AsyncInterleaver:
    return AsyncInterleaver.from_env(
        {
            "INTERLEAVE_JOB_ID": name,
            "INTERLEAVE_GROUP": group,
            "INTERLEAVE_NODE": node,
            "INTERLEAVE_ORCHESTRATOR": address,
            "INTERLEAVE_TOKEN": f"token-{name}-{node}",
        }
    )


@pytest.fixture
async def a(client: Client, n1: FakeAgent) -> AsyncIterator[AsyncInterleaver]:
    made = job("a", client.address)
    yield made
    await made.close()


@pytest.fixture
async def b(client: Client, n1: FakeAgent) -> AsyncIterator[AsyncInterleaver]:
    made = job("b", client.address)
    yield made
    await made.close()


async def test_a_holder_gives_way_when_somebody_waits_and_comes_back(
    a: AsyncInterleaver, b: AsyncInterleaver, client: Client
) -> None:
    async with a.turn("long"):
        assert not await a.should_yield()
        short = asyncio.create_task(b.acquire("short"))
        await eventually(a.should_yield)
        giving_way = asyncio.create_task(a.yield_if_wanted())
        await short
        await client.waiting(1)
        await b.yield_()
        assert await giving_way
        assert a.lease is not None

    assert [row.phase for row in await client.slices()] == ["long", "short", "long"]


async def test_what_was_told_at_the_grant_is_known_at_once(
    a: AsyncInterleaver, b: AsyncInterleaver, client: Client
) -> None:
    assert not await a.should_yield()
    await b.acquire()
    await b.yield_()
    await client.lock("c")
    first = asyncio.create_task(a.acquire())
    await client.waiting(1)
    second = asyncio.create_task(b.acquire())
    await client.waiting(2)

    await client.unlock("c")
    await first

    await eventually(a.should_yield)
    await a.yield_()
    await second


async def test_who_only_tries_leaves_no_trace(
    a: AsyncInterleaver, b: AsyncInterleaver, client: Client
) -> None:
    await a.acquire()

    assert await b.try_acquire() is None

    await client.waiting(0)
    await a.yield_()
    lease = await b.try_acquire()
    assert lease is not None
    assert lease.switch_s > 0, "a's state had to go"


async def test_a_cancelled_task_leaves_the_queue_at_once(
    a: AsyncInterleaver, b: AsyncInterleaver, client: Client
) -> None:
    await a.acquire()
    waiting = asyncio.create_task(b.acquire())
    await client.waiting(1)

    waiting.cancel()

    await client.waiting(0)
    await a.yield_()
    assert (await client.granted("c")).epoch == 2


async def test_each_group_of_several_is_yielded_by_itself(client: Client, n1: FakeAgent) -> None:
    async with agent(client.address, "n2") as n2:
        await n1.start("x", "trainer", 1)
        await n2.start("x", "sampler", 0)
        x = job("x", client.address, "trainer")
        lease = await x.acquire(groups=["trainer", "sampler"])
        assert set(lease.also) == {"sampler"}

        await x.yield_(["trainer"])
        await client.held_by("", "trainer")
        await client.held_by("x", "sampler")
        await x.acquire(groups=["trainer"])
        await x.close()

        await client.held_by("", "trainer")
        await client.held_by("", "sampler")


async def test_two_jobs_that_would_wait_for_each_other_are_told(client: Client, n1: FakeAgent) -> None:
    for name in "xy":
        await n1.start(name, "trainer", 1)
        await n1.start(name, "sampler", 2)
    x, y = job("x", client.address, "trainer"), job("y", client.address, "sampler")
    await x.acquire()
    await y.acquire()
    waiting = asyncio.create_task(x.acquire(groups=["sampler"]))
    await client.waiting(1, "sampler")

    with pytest.raises(Deadlock, match="wait"):
        await y.acquire(groups=["trainer"])

    await y.yield_()
    await waiting
    await x.close()
    await y.close()


async def test_the_log_says_how_long_it_will_take(
    orchestrator: Orchestrator,
    a: AsyncInterleaver,
    b: AsyncInterleaver,
    client: Client,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in "ab":
        orchestrator.arbiter.core.habits.held(Key(name, "demo"), "", held_s=40, switch_s=5)
    await a.acquire()
    waiting = asyncio.create_task(b.acquire())
    said = ""

    async def is_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return "about" in said

    await eventually(is_said)
    assert "waiting for the devices of group demo: 1 ahead, about 4" in said
    await a.yield_()
    await waiting


async def test_tasks_and_threads_of_a_job_share_its_lease(a: AsyncInterleaver, client: Client) -> None:
    mine: Interleaver = a.interleaver
    async with a.turn("first") as one, a.turn("second") as two:
        assert one == two == await asyncio.to_thread(mine.acquire)

    await client.held_by("")
    assert len(await client.slices()) == 1
