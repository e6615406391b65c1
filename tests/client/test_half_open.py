"""A connection whose other end is gone without a word is noticed, and what was asked is asked again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.client.fakes import FakeOrchestrator, queued
from tests.proxy import proxy


async def test_who_waits_over_a_dead_connection_asks_again_over_a_new_one(
    orchestrator: FakeOrchestrator, environ: dict[str, str]
) -> None:
    waits, over = threading.Event(), threading.Event()

    def silent(context: Any) -> Iterator[pb.AcquireUpdate]:
        yield queued(1)
        waits.set()
        over.wait(60)

    async with proxy(int(orchestrator.address.rpartition(":")[2])) as link:
        mine = Interleaver.from_env({**environ, "INTERLEAVE_ORCHESTRATOR": link.address})
        orchestrator.acquires.put(silent)
        try:
            acquiring = asyncio.create_task(asyncio.to_thread(mine.acquire, timeout=60))
            assert await asyncio.to_thread(waits.wait, 20)
            link.fall_silent()
            lease = await acquiring
        finally:
            over.set()

        assert lease.epoch == 1
        assert orchestrator.calls["Acquire"] == 2
        await asyncio.to_thread(mine.close)
