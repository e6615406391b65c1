"""An arbiter with a store whose writes wait until the test lets them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import Store


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
