"""The end of the link to the orchestrator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.link import Link
from tests.node_agent.fakes import FakeOrchestrator, config


@pytest.mark.parametrize("later", range(0, 40, 2))
async def test_an_agent_that_is_stopped_while_the_stream_ends_does_stop(
    folder: Path, orchestrator: FakeOrchestrator, later: int
) -> None:
    link = Link(config(folder, orchestrator.address), lambda: pb.Hello(node="n1"), lambda _: None)
    running = asyncio.create_task(link.run())
    await link.connected.wait()

    stopping = asyncio.create_task(orchestrator.stop())
    for _ in range(later):  # turns of the loop
        await asyncio.sleep(0)
    running.cancel()

    await asyncio.wait({running}, timeout=5)
    assert running.done()
    await stopping
