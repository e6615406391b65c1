"""Our own service: acquire with news, yield with an epoch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.connect import ERROR_KEY
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.services.interleave import InterleaveService
from slurm_interleave.sql.rows import Key
from tests.orchestrator.fake_agent import FakeAgent, agent
from tests.orchestrator.serving import Client, serving


async def error_class(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailing = caught.value.trailing_metadata()
    return dict(trailing or ()).get(ERROR_KEY, "")  # type: ignore[arg-type]


async def test_a_waiter_hears_its_place_until_the_grant(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")
    await client.unlock("a")
    first = await client.granted("b")
    call = client.acquire("c", phase="train")
    assert (await call.read()).queued == pb.Queued(ahead=1)

    n1.answers = False
    assert await client.end("b", first.epoch) == 1

    assert (await call.read()).queued.ahead == 0
    await n1.done(n1.orders[-1])
    [last] = [update async for update in _rest(call)]
    granted = last.granted
    assert granted.epoch == first.epoch + 1
    assert 0 < granted.switch_s < granted.waited_s
    assert not granted.context_restored


async def test_a_waiter_hears_how_long_it_will_take_once_that_is_known_and_so_does_the_status(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent
) -> None:
    for job in "ab":
        orchestrator.arbiter.core.habits.held(Key(job, "demo"), "", held_s=20, switch_s=3)
    await client.lock("b")
    await client.unlock("b")
    await client.lock("a")
    call = client.acquire("b")

    queued = (await call.read()).queued
    now, [group] = time.time(), (await client.status("demo")).groups

    assert queued.HasField("expected_s")
    assert 13 < queued.expected_s < 23
    starts = {member.job_id: member.expected_start for member in group.members}
    assert starts == {"a": 0, "b": pytest.approx(now + queued.expected_s, abs=5), "c": 0}
    call.cancel()


async def _rest(call: Any) -> Any:
    while (update := await call.read()) is not grpc.aio.EOF:
        yield update


async def test_a_phase_is_cut_to_printable_text(client: Client, n1: FakeAgent) -> None:
    await client.granted("a", phase="train\n\x1b[31m" + "x" * 300)

    [running] = await client.slices()

    assert running.phase.startswith("train  [31mxxx")
    assert len(running.phase) == 128


@pytest.mark.parametrize(("job", "group"), [("", "demo"), ("a", ""), ("a b", "demo"), ("a", "-demo")])
async def test_bad_names_are_refused(client: Client, n1: FakeAgent, job: str, group: str) -> None:
    assert await error_class(client.granted(job, group)) == "BadName"
    assert await error_class(client.end(job, 0, group)) == "BadName"


async def test_errors_travel_with_their_class(client: Client, n1: FakeAgent) -> None:
    await client.granted("a")

    assert await error_class(client.granted("a", "nonesuch")) == "NotRegistered"
    assert await error_class(client.granted("stranger")) == "NotRegistered"
    assert await error_class(client.end("a", 99)) == "StaleLease"
    assert await error_class(client.end("b")) == "NotTheHolder"
    assert await error_class(client.status("nonesuch")) == "UnknownGroup"


async def test_a_job_that_ends_while_it_waits_is_told(client: Client, n1: FakeAgent) -> None:
    await client.granted("a")
    waiting = asyncio.ensure_future(error_class(client.granted("b")))
    await client.waiting(1)

    await n1.end("b")

    assert await waiting == "JobEnded"


async def test_a_turn_that_paused_at_a_safe_point_says_so_and_can_be_yielded_twice(
    client: Client, n1: FakeAgent
) -> None:
    await n1.start("17")
    lease = await client.granted("17")
    pause = pb.YieldRequest(job_id="17", group="demo", epoch=lease.epoch, pause=True)

    await client.ours.Yield(pause)
    await client.ours.Yield(pause)

    assert [row.state for row in await client.slices()] == ["PAUSED"]


async def test_a_deadline_gives_the_place_up(client: Client, n1: FakeAgent) -> None:
    await client.granted("a")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.granted("b", timeout=0.1)

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await client.waiting(0)


async def test_a_caller_who_goes_gives_the_place_up(client: Client, n1: FakeAgent) -> None:
    await client.granted("a")
    call = client.acquire("b")
    await client.waiting(1)

    call.cancel()

    await client.waiting(0)


async def test_a_grant_that_races_with_the_deadline_is_given_back(client: Client, n1: FakeAgent) -> None:
    heard = []
    for number in range(60):
        first = await client.granted("a")
        call = client.acquire("b", timeout=0.04)
        await asyncio.sleep(0.0005 * number)
        await client.end("a", first.epoch)
        epoch = 0
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for update in call:
                epoch = update.granted.epoch
        heard.append(bool(epoch))
        if epoch:
            await client.end("b", epoch)
        last = await asyncio.wait_for(client.granted("c"), 30)
        await client.end("c", last.epoch)

    assert True in heard
    assert False in heard


async def test_a_grant_that_could_not_be_sent_is_given_back(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent
) -> None:
    """The stream is closed at the very moment of the grant, before the client has it."""

    class Context:
        def invocation_metadata(self) -> tuple[()]:
            return ()

        def time_remaining(self) -> None:
            return None

    service = InterleaveService(orchestrator.arbiter, orchestrator._gate, orchestrator.links, {})
    updates: Any = service.Acquire(pb.AcquireRequest(job_id="a", group="demo"), Context())
    async with contextlib.aclosing(updates):
        while not (await anext(updates)).HasField("granted"):
            pass

    assert (await asyncio.wait_for(client.granted("b"), 30)).epoch == 2


async def test_a_yield_that_is_cancelled_in_the_middle_of_the_write_hurts_nobody(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent
) -> None:
    await client.granted("a")

    yielding = asyncio.create_task(orchestrator.arbiter.yield_lease("a", "demo", 0))
    await asyncio.sleep(0)
    yielding.cancel()
    await asyncio.gather(yielding, return_exceptions=True)

    assert (await asyncio.wait_for(client.granted("b"), 30)).epoch == 2


async def test_a_stop_keeps_holder_queue_and_contexts(tmp_path: Path) -> None:
    async with serving(tmp_path) as first:
        client = Client(f"127.0.0.1:{first.port}")
        async with agent(client.address) as n1:
            for job in "abc":
                await n1.start(job)
            await client.granted("a")
            waiting = [client.acquire("b")]
            await client.waiting(1)
            waiting.append(client.acquire("c"))
            await client.waiting(2)
            jobs = n1.jobs
    await client.channel.close()

    async with serving(tmp_path) as second:
        client = Client(f"127.0.0.1:{second.port}")
        late = asyncio.ensure_future(client.granted("c"))
        early = asyncio.ensure_future(client.granted("b"))
        fake = FakeAgent(client.address)
        fake.jobs = jobs
        await fake.connect()
        assert (await client.granted("a")).epoch == 1
        await client.end("a", 1)
        assert (await asyncio.wait_for(early, 30)).epoch == 2
        assert not late.done()
        await client.end("b", 2)
        assert (await asyncio.wait_for(late, 30)).epoch == 3
        await fake.close()
        await client.channel.close()
