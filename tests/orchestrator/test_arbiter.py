"""What the arbiter does with decisions: first written, then carried out."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from slurm_interleave.client.core.errors import NotInTime
from slurm_interleave.client.core.states import Context
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import Grant
from slurm_interleave.sql import rows
from tests.orchestrator.arbitration import SlowStore, acquire, arbiter, store

__all__ = ["arbiter", "store"]


async def test_an_answer_comes_only_after_its_record(arbiter: Arbiter, store: SlowStore) -> None:
    store.may_write.clear()
    waiting = asyncio.create_task(acquire(arbiter, "a"))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    assert not store.all(rows.Lease)

    store.may_write.set()

    lease = await waiting
    assert store.all(rows.Lease) == [lease]


async def test_an_order_goes_out_only_after_its_record(arbiter: Arbiter, store: SlowStore) -> None:
    orders = arbiter._agents.orders  # type: ignore[attr-defined]
    await acquire(arbiter, "a")
    await arbiter.yield_lease("a", "g", 0)
    store.may_write.clear()
    waiting = asyncio.create_task(acquire(arbiter, "b"))
    await asyncio.sleep(0.02)
    assert orders.empty()

    store.may_write.set()

    order = await asyncio.wait_for(orders.get(), 30)
    [part] = [part for part in store.all(rows.Part) if part.job_id == "a"]
    assert (part.context, part.operation) == (Context.SAVING, order.operation)
    waiting.cancel()


async def test_what_piled_up_is_written_in_one_transaction(arbiter: Arbiter, store: SlowStore) -> None:
    store.may_write.clear()
    waiting = [asyncio.create_task(acquire(arbiter, job)) for job in "abc"]
    await asyncio.sleep(0.02)
    before = store.writes

    store.may_write.set()
    await waiting[0]

    assert store.writes - before <= 2
    for task in waiting:
        task.cancel()


async def test_a_disk_that_is_slow_is_waited_for_by_a_thread(arbiter: Arbiter, store: SlowStore) -> None:
    store.embedded, store.took_s = True, 0.02
    for _ in range(3):
        await acquire(arbiter, "a")
        await arbiter.yield_lease("a", "g", 0)
    store.may_write.clear()

    waiting = asyncio.create_task(acquire(arbiter, "a"))
    for _ in range(100):
        await asyncio.sleep(0)  # the loop goes on
    assert not waiting.done()
    store.may_write.set()

    assert (await waiting).epoch == 4


async def test_a_caller_who_goes_during_the_write_gives_the_grant_back(
    arbiter: Arbiter, store: SlowStore
) -> None:
    store.may_write.clear()
    waiting = asyncio.create_task(acquire(arbiter, "a"))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    store.may_write.set()
    following = asyncio.create_task(acquire(arbiter, "b"))
    await asyncio.sleep(0)

    await asyncio.wait_for(arbiter._agents.orders.get(), 30)  # type: ignore[attr-defined]
    assert store.all(rows.Lease) == []
    following.cancel()


@pytest.mark.parametrize("verb", ["yield", "tell"])
async def test_a_caller_who_goes_during_the_write_does_not_stop_the_writer(
    arbiter: Arbiter, store: SlowStore, verb: str
) -> None:
    lease = await acquire(arbiter, "a")
    store.may_write.clear()
    down = ev.NodeDown(arbiter.now(), "n2")
    call = arbiter.tell(down) if verb == "tell" else arbiter.yield_lease("a", "g", lease.epoch)
    telling = asyncio.create_task(call)  # type: ignore[arg-type]
    await asyncio.sleep(0.02)
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)

    store.may_write.set()

    assert (await acquire(arbiter, "a")).epoch == (2 if verb == "yield" else 1)


async def test_a_deadline_ends_the_wait(arbiter: Arbiter) -> None:
    await acquire(arbiter, "a")

    with pytest.raises(NotInTime):
        await arbiter.acquire_lease("b", "g", 0.02)

    assert not arbiter.core.state.waiters


async def test_an_acquire_left_at_its_lease_gives_it_back(arbiter: Arbiter) -> None:
    updates = arbiter.acquire("a", ["g"], "")
    async with contextlib.aclosing(updates):
        async for update in updates:
            if isinstance(update, Grant):
                break

    assert not arbiter.core.state.leases
