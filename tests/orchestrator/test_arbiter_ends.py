"""What ends the arbiter, and whom it answers then: nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.core.errors import InterleaveError, Replaced
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.sql.store import Store
from tests.orchestrator.arbitration import acquire, arbiter, store
from tests.orchestrator.serving import Client, serving

__all__ = ["arbiter", "store"]


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
