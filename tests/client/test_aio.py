"""Turns of asyncio tasks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from slurm_interleave.client import AsyncInterleaver
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.client.fakes import FakeOrchestrator, queued


@pytest.fixture
async def ours(environ: dict[str, str]) -> AsyncIterator[AsyncInterleaver]:
    made = AsyncInterleaver.from_env(environ)
    yield made
    await made.close()


class Waiter:
    """An acquire that waits until the test lets it go on."""

    def __init__(self, orchestrator: FakeOrchestrator) -> None:
        self.waits, self.goes_on, self.gone = threading.Event(), threading.Event(), threading.Event()
        self._orchestrator = orchestrator
        orchestrator.acquires.put(self.answer)

    def answer(self, context: Any) -> Iterator[pb.AcquireUpdate]:
        context.add_callback(self.gone.set)
        context.add_callback(self.goes_on.set)
        yield queued(1)
        self.waits.set()
        assert self.goes_on.wait(20)
        if not self.gone.is_set():
            yield self._orchestrator.granted()


async def test_a_turn_holds_for_the_body_and_other_tasks_run_while_it_waits(
    ours: AsyncInterleaver, orchestrator: FakeOrchestrator
) -> None:
    waiter = Waiter(orchestrator)

    async def take() -> int:
        async with ours.turn("train") as lease:
            assert ours.lease == lease
            return lease.epoch

    turn = asyncio.create_task(take())
    await asyncio.to_thread(waiter.waits.wait, 20)
    waiter.goes_on.set()

    assert await turn == 1
    assert orchestrator.yielded == [1]


async def test_a_turn_as_a_decorator_holds_for_each_call(
    ours: AsyncInterleaver, orchestrator: FakeOrchestrator
) -> None:
    @ours.turn("train")
    async def step() -> None:
        assert ours.lease is not None

    await step()
    await step()

    assert orchestrator.yielded == [1, 2]


@pytest.mark.parametrize("how", ["acquire", "turn"])
async def test_a_task_that_is_cancelled_while_it_waits_leaves_the_queue(
    ours: AsyncInterleaver, orchestrator: FakeOrchestrator, how: str
) -> None:
    waiter = Waiter(orchestrator)

    async def ask() -> None:
        if how == "acquire":
            await ours.acquire()
        async with ours.turn():
            pytest.fail("it was cancelled")

    waiting = asyncio.create_task(ask())
    await asyncio.to_thread(waiter.waits.wait, 20)
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(waiter.gone.wait, 20)
    assert await asyncio.to_thread(orchestrator.heard_yield.wait, 20), "it says that it has given up"
    assert ours.lease is None
    assert (await ours.acquire()).epoch == 1, "and may ask again"


async def test_a_grant_that_crosses_a_cancel_is_given_back(
    ours: AsyncInterleaver, orchestrator: FakeOrchestrator
) -> None:
    asking = asyncio.ensure_future(ours.acquire())
    granted = threading.Event()
    ours.interleaver.on_grant(granted.set)
    while not granted.is_set():  # and this loop does not hear of it before it cancels
        await asyncio.sleep(0)
        granted.wait(0.05) and asking.cancel()

    with contextlib.suppress(asyncio.CancelledError):
        await asking
        await ours.yield_()
    assert await asyncio.to_thread(orchestrator.heard_yield.wait, 20)
    assert orchestrator.yielded[-1] == 1


async def test_a_cancelled_acquire_leaves_the_lease_that_another_task_holds(
    ours: AsyncInterleaver, orchestrator: FakeOrchestrator
) -> None:
    await ours.acquire()
    asking = asyncio.ensure_future(ours.acquire())
    await asyncio.sleep(0)
    asking.cancel()

    with contextlib.suppress(asyncio.CancelledError):
        await asking
    assert ours.lease is not None
    assert orchestrator.yielded == []


async def test_an_exception_of_the_body_yields_and_comes_through(
    ours: AsyncInterleaver, orchestrator: FakeOrchestrator
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with ours.turn():
            _ = 1 / 0

    assert orchestrator.yielded == [1]


async def test_the_rest_is_as_for_threads(ours: AsyncInterleaver) -> None:
    assert await ours.try_acquire() is not None
    assert not await ours.should_yield()
    assert not await ours.yield_if_wanted()


async def test_outside_an_interleaved_job_nothing_is_done() -> None:
    outside = AsyncInterleaver.from_env({})

    async with outside.turn() as lease:
        assert lease.epoch == 0
    await outside.close()
