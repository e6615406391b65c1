from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.node_agent.fakes import FakeOrchestrator, config, running


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, since sockets lie below it."""
    path = Path(tempfile.mkdtemp(prefix="ilv-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def sim(folder: Path) -> SimConfig:
    return SimConfig(directory=folder / "sim", devices=2, memory_mib=8)


@pytest_asyncio.fixture
async def orchestrator() -> AsyncIterator[FakeOrchestrator]:
    fake = FakeOrchestrator()
    await fake.start()
    yield fake
    await fake.stop()


@pytest_asyncio.fixture
async def agent(folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator) -> AsyncIterator[Agent]:
    """A running agent that has said hello."""
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)) as agent:
        await orchestrator.hears("hello")
        yield agent
