"""Reports of turns that end, begin and last meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import PAGE, SliceFilter
from tests.orchestrator.arbitration import SlowStore, acquire, arbiter, store
from tests.orchestrator.serving import eventually
from tests.sql.given import put, slice_of

__all__ = ["arbiter", "store"]


@pytest.mark.parametrize("earlier", [2, 2 * PAGE], ids=["after it was read", "before it is read"])
async def test_a_turn_that_ends_during_a_report_is_in_it_once(
    arbiter: Arbiter, store: SlowStore, earlier: int
) -> None:
    given = [slice_of(10_000 + n, ended=float(n), requested=float(n)) for n in range(earlier)]
    store.record(put(*given), store.epoch)
    lasting = await acquire(arbiter, "a")
    orders = arbiter._agents.orders  # type: ignore[attr-defined]
    waiting = asyncio.create_task(acquire(arbiter, "b"))

    async def waits() -> bool:
        return bool(arbiter.core.state.waiters)

    await eventually(waits)
    found: list[rows.Slice] = []
    async for page in arbiter.slices(SliceFilter()):
        found += page
        if lasting is not None:
            # In the middle of the report: a ends, and b is granted and ends too.
            await arbiter.yield_lease("a", "g", 0)
            order = await asyncio.wait_for(orders.get(), 30)
            done = (order.node, order.operation, order.job_id, True, Context.SAVED, 0, 0.0, "")
            await arbiter.tell(ev.OperationDone(arbiter.now(), *done))
            await waiting
            await arbiter.yield_lease("b", "g", 0)
            lasting = None

    turns = [(row.job_id, row.requested) for row in found]
    assert len(turns) == len(set(turns)) == earlier + 2


async def test_sums_and_what_lasts_have_each_turn_once(arbiter: Arbiter) -> None:
    await acquire(arbiter, "a")
    await arbiter.yield_lease("a", "g", 0)
    await acquire(arbiter, "a")
    await arbiter.tell(ev.Revoke(arbiter.now(), "a", "g"))  # so it asks again in the moment of its end
    await acquire(arbiter, "a")

    found = [row async for page in arbiter.slices(SliceFilter(), summed=True) for row in page]

    assert [row.turns for row in found if isinstance(row, rows.Day)] == [2]
    assert [row.state for row in found if isinstance(row, rows.Slice)] == [SliceState.RUNNING]


async def test_a_report_of_all_that_lasts_comes_in_pages_too(arbiter: Arbiter) -> None:
    jobs = [f"j{number}" for number in range(PAGE + 1)]
    registered = [ev.Registration(job, job, "1", (number,)) for number, job in enumerate(jobs)]
    await arbiter.tell(ev.NodeUp(arbiter.now(), "n2", tuple(registered)))
    for job in jobs:
        await asyncio.wait_for(arbiter.acquire_lease(job, job), 30)

    pages = [len(page) async for page in arbiter.slices(SliceFilter())]

    assert pages == [PAGE, 1]
