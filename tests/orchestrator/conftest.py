from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slurm_interleave.orchestrator.daemon import Orchestrator
from tests.orchestrator.fake_agent import FakeAgent, agent
from tests.orchestrator.serving import Client, serving


@pytest.fixture
async def orchestrator(tmp_path: Path) -> AsyncIterator[Orchestrator]:
    async with serving(tmp_path) as running:
        yield running


@pytest.fixture
async def n1(orchestrator: Orchestrator) -> AsyncIterator[FakeAgent]:
    """The agent of node n1, with the jobs a, b and c of group demo on device 0."""
    async with agent(f"127.0.0.1:{orchestrator.port}") as connected:
        for job in "abc":
            await connected.start(job)
        yield connected


@pytest.fixture
async def client(orchestrator: Orchestrator) -> AsyncIterator[Client]:
    calling = Client(f"127.0.0.1:{orchestrator.port}")
    yield calling
    await calling.channel.close()
