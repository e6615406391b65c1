"""What the arbiter does with decisions: first written, then carried out; and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.core.errors import InterleaveError, NotInTime, Replaced
from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.commands import Grant
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import PAGE, SliceFilter, Store
from tests.orchestrator.serving import Client, eventually, serving
from tests.sql.given import put, slice_of


class Agents:
    """Keeps what it is told to order."""

    def __init__(self) -> None:
        self.orders: asyncio.Queue[cmd.Operate] = asyncio.Queue()

    def operate(self, operation: cmd.Operate) -> None:
        self.orders.put_nowait(operation)


class SlowStore(Store):
    """Real SQL, whose writes wait until the test lets them."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.may_write = threading.Event()
        self.may_write.set()
        self.writes = 0
        self.error: Exception | None = None
        self.took_s = 0.0
        self.embedded = False  # written in a thread, beside the test

    def record(self, changes: Any, epoch: int, *, may_wait: bool = True) -> None:
        assert self.may_write.wait(10)
        if self.error is not None:
            raise self.error
        self.writes += 1
        time.sleep(self.took_s)
        super().record(changes, epoch, may_wait=may_wait)


@pytest.fixture
def store(tmp_path: Path) -> SlowStore:
    return SlowStore(f"sqlite:///{tmp_path}/orchestrator.db")


@pytest.fixture
async def arbiter(store: SlowStore) -> AsyncIterator[Arbiter]:
    agents = Agents()
    arbiter = Arbiter(store, agents, Rules())
    running = asyncio.create_task(arbiter.run())
    await arbiter.tell(ev.NodeUp(arbiter.now(), "n1", ()))
    for job in "abc":
        registration = ev.Registration(job, "g", "1", (0,))
        await arbiter.tell(ev.Registered(arbiter.now(), "n1", registration))
    yield arbiter
    store.may_write.set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    arbiter.close()
    store.close()


async def acquire(arbiter: Arbiter, job: str) -> rows.Lease:
    return await asyncio.wait_for(arbiter.acquire_lease(job, "g"), 30)


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


async def test_an_orchestrator_that_was_replaced_ends_and_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as orchestrator:
        running = next(task for task in asyncio.all_tasks() if task.get_name() == "arbiter")
        newer = Store(f"sqlite:///{tmp_path}/orchestrator.db")

        orchestrator.arbiter.post(ev.NodeUp(1.0, "n1", (ev.Registration("a", "g", "1", (0,)),)))

        with pytest.raises(Replaced, match="another orchestrator has started on this database"):
            await asyncio.wait_for(asyncio.shield(running), 30)
        newer.close()


async def test_an_orchestrator_that_was_replaced_answers_nothing_not_even_to_the_holder(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as orchestrator:
        arbiter = orchestrator.arbiter
        await arbiter.tell(ev.NodeUp(1.0, "n1", (ev.Registration("a", "g", "1", (0,)),)))
        await acquire(arbiter, "a")
        Store(f"sqlite:///{tmp_path}/orchestrator.db").close()

        again = asyncio.create_task(acquire(arbiter, "a"))
        serve = next(task for task in asyncio.all_tasks() if task.get_name() == "arbiter")

        with pytest.raises(Replaced):
            await asyncio.wait_for(asyncio.shield(serve), 30)
        assert not again.done()
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_a_write_that_fails_ends_the_process_and_answers_nobody(tmp_path: Path) -> None:
    async with serving(tmp_path) as orchestrator:
        client = Client(f"127.0.0.1:{orchestrator.port}")
        await orchestrator.arbiter.tell(
            ev.NodeUp(1.0, "n1", (ev.Registration("a", "g", "1", (0,)),)),
        )
        serve = next(task for task in asyncio.all_tasks() if "Orchestrator.run" in repr(task))
        broken = InterleaveError("disk full")

        def fail(*_: Any, **__: Any) -> None:
            raise broken

        orchestrator.arbiter._store.record = fail  # type: ignore[method-assign]
        call = client.lock("a", "g")

        with pytest.raises(InterleaveError, match="disk full"):
            await asyncio.wait_for(asyncio.shield(serve), 30)
        assert (await asyncio.wait_for(call.code(), 30)).name in ("CANCELLED", "UNAVAILABLE")
        await client.channel.close()


async def test_a_core_that_breaks_ends_the_process(tmp_path: Path) -> None:
    async with serving(tmp_path) as orchestrator:
        serve = next(task for task in asyncio.all_tasks() if "Orchestrator.run" in repr(task))

        with pytest.raises(AssertionError):
            orchestrator.arbiter.post(object())  # type: ignore[arg-type]

        with pytest.raises(AssertionError):
            await asyncio.wait_for(asyncio.shield(serve), 30)


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
