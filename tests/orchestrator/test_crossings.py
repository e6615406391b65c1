"""A grant that crosses the end of its call, or a cut of the network, is not lost and not left unknown."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from pathlib import Path

import grpc
import pytest

from slurm_interleave.client import session
from slurm_interleave.client.connect import CALL_KEY
from slurm_interleave.client.session import Lease, Member, Session
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.sql.rows import Key
from tests.orchestrator.fake_agent import FakeAgent, agent
from tests.orchestrator.serving import Client, eventually, serving
from tests.proxy import proxy

CROSSINGS = 300
B = Key("b", "demo")


def job_b(address: str) -> Session:
    return Session(Member("b", "demo", "n1", address, "token-b-n1"), lambda _: None)


async def until_late(mine: Session, within_s: float) -> int:
    """Acquire as a job does that has no more time than this; return the epoch, or 0."""
    with contextlib.suppress(TimeoutError):
        return (await asyncio.to_thread(mine.acquire, "", within_s)).epoch
    return 0


async def until_cancelled(client: Client, name: str, within_s: float) -> int:
    """Acquire with a call that is cancelled; return the epoch, or 0."""
    named = ((CALL_KEY, name),)
    call = client.ours.AcquireSoon(pb.AcquireRequest(job_id="b", group="demo", patience_s=10), metadata=named)
    asyncio.get_running_loop().call_later(within_s, call.cancel)
    try:
        return int((await call).granted.epoch)
    except asyncio.CancelledError:
        await client.end("b", metadata=named)
        return 0


@pytest.mark.timeout(120)
async def test_no_grant_that_crosses_the_end_of_its_call_stays_unknown(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent
) -> None:
    dice, mine, heard = random.Random(7), job_b(client.address), []  # noqa: S311 - dice, no secret
    leases = orchestrator.arbiter.core.state.leases
    for number in range(CROSSINGS):
        first = await client.granted("a")
        # A handover takes some milliseconds; the orchestrator answers 20 ms before a deadline.
        if number % 2:
            asking = asyncio.ensure_future(until_late(mine, 0.03 + dice.random() / 100))
        else:
            asking = asyncio.ensure_future(until_cancelled(client, str(number), 0.008 + dice.random() / 100))
        await asyncio.sleep(dice.random() / 100)
        await client.end("a", first.epoch)

        epoch = await asking

        heard.append(epoch)
        if epoch:
            await client.end("b", epoch)
        assert B not in leases, f"crossing {number} left a lease that its job does not know"
        last = await asyncio.wait_for(client.granted("c"), 30)
        await client.end("c", last.epoch)
    mine.close()

    assert any(heard)
    assert not all(heard)
    epochs = sorted(row.epoch for row in await client.slices())
    assert epochs == list(range(1, orchestrator.arbiter.core.state.epoch + 1))


async def test_an_acquire_that_was_given_up_ends_its_own_lease_alone(
    client: Client, n1: FakeAgent, orchestrator: Orchestrator
) -> None:
    epoch = (await client.granted("b", metadata=((CALL_KEY, "first"),))).epoch
    again = await client.granted("b", metadata=((CALL_KEY, "second"),))
    assert again.epoch == epoch

    await client.end("b", metadata=((CALL_KEY, "second"),))
    assert B in orchestrator.arbiter.core.state.leases
    await client.end("b", metadata=((CALL_KEY, "unheard-of"),))
    assert B in orchestrator.arbiter.core.state.leases

    await client.end("b", epoch)


async def test_a_yield_that_a_dead_process_left_does_not_end_the_lease_of_the_next_one(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent
) -> None:
    dead, alive = job_b(client.address), job_b(client.address)
    epoch = (await asyncio.to_thread(dead.acquire, "", 10)).epoch
    assert (await asyncio.to_thread(alive.acquire, "", 10)).epoch == epoch

    await asyncio.to_thread(dead.yield_lease, epoch)  # as it comes when the network has held it up

    assert B in orchestrator.arbiter.core.state.leases
    await asyncio.to_thread(alive.yield_lease, epoch)
    assert B not in orchestrator.arbiter.core.state.leases
    dead.close()
    alive.close()


async def test_an_acquire_that_was_given_up_while_the_orchestrator_was_away_leaves_no_lease(
    tmp_path: Path,
) -> None:
    named = ((CALL_KEY, "first"),)
    async with serving(tmp_path) as one, agent(f"127.0.0.1:{one.port}") as node:
        await node.start("b")
        client = Client(f"127.0.0.1:{one.port}")
        await client.granted("b", metadata=named)
        await client.channel.close()
    async with serving(tmp_path) as one:
        client = Client(f"127.0.0.1:{one.port}")

        await client.end("b", metadata=named)

        assert B not in one.arbiter.core.state.leases
        await client.channel.close()


async def test_a_name_that_cannot_be_is_refused(client: Client, n1: FakeAgent) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.granted("b", metadata=((CALL_KEY, "x" * 129),))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_interrupt_in_the_middle_of_an_acquire_leaves_the_queue_at_once(
    client: Client, n1: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_PATIENCE_S", 0.01)
    await client.granted("a")

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    mine = Session(Member("b", "demo", "n1", client.address, "token-b-n1"), interrupt)
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            mine.acquire("", None)
        except KeyboardInterrupt as error:
            failed.append(error)

    await asyncio.to_thread(ask)

    assert failed
    assert (await client.group()).group.waiter_queue_depth == 0
    mine.close()


async def test_a_grant_that_nobody_comes_for_after_a_call_in_one_message_is_given_back(
    client: Client, n1: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_interleave.orchestrator.core.calls.RETURN_GRACE_S", 0.2)
    first = await client.granted("a")
    await client.ours.AcquireSoon(pb.AcquireRequest(job_id="b", group="demo", patience_s=0.01))
    await client.end("a", first.epoch)

    assert (await asyncio.wait_for(client.granted("c"), 30)).epoch == 3


class Asking:
    """An acquire of job b in a thread."""

    def __init__(self, mine: Session) -> None:
        self._granted = threading.Event()
        self._lease: Lease | None = None
        self._thread = threading.Thread(target=self._ask, args=(mine,))
        self._thread.start()

    def _ask(self, mine: Session) -> None:
        self._lease = mine.acquire("", 20)

    async def epoch(self) -> int:
        await asyncio.to_thread(self._thread.join, 20)
        assert self._lease is not None
        return self._lease.epoch


async def test_a_cut_of_the_network_keeps_the_place_and_the_retry_resumes_it(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent
) -> None:
    state = orchestrator.arbiter.core.state
    async with proxy(orchestrator.port) as line:
        mine = job_b(line.address)
        await client.granted("a")
        asking = Asking(mine)
        await client.waiting(1)
        third = asyncio.ensure_future(client.granted("c"))
        await client.waiting(2)
        place, before = state.waiters[B].seq, set(state.attached.of(B))

        line.cut()

        async def back() -> bool:
            return bool(state.attached.of(B) - before)

        await eventually(back)
        assert state.waiters[B].seq == place
        await client.end("a")
        epoch = await asking.epoch()
        assert epoch == 2, "it came before c"
        await client.end("b", epoch)
        await third
        mine.close()


async def test_a_grant_that_a_cut_swallowed_is_there_for_the_retry(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent
) -> None:
    leases = orchestrator.arbiter.core.state.leases
    async with proxy(orchestrator.port) as line:
        mine = job_b(line.address)
        await client.granted("a")
        asking = Asking(mine)
        await client.waiting(1)
        line.hold_answers()
        await client.end("a")

        async def granted() -> bool:
            return B in leases

        await eventually(granted)
        line.cut()

        assert await asking.epoch() == 2
        await client.end("b", 2)
        mine.close()
    epochs = sorted(row.epoch for row in await client.slices())
    assert epochs == [1, 2]
