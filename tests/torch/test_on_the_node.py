"""The torch backend told by a real agent; buffers of simulated devices stand for the memory that it frees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.workload import Rank, Workload
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.node_agent.channel import has_channels
from tests.node_agent.conftest import agent, folder, orchestrator, sim
from tests.node_agent.fakes import (
    FakeOrchestrator,
    config,
    device_of,
    environment,
    running,
    start_job,
)
from tests.torch.on_sim import OnSim
from tests.torch.training import Training

__all__ = ["agent", "folder", "orchestrator", "sim"]


@pytest_asyncio.fixture
async def training(agent: Agent, folder: Path, sim: SimConfig) -> AsyncIterator[Training]:
    async with registered(agent, folder, sim) as training:
        yield training


@asynccontextmanager
async def registered(agent: Agent, folder: Path, sim: SimConfig) -> AsyncIterator[Training]:
    await start_job(folder)
    training = Training()
    training.step()
    state = OnSim(training.offload(), device_of(sim))
    workload = Workload.from_env(state, Rank(), environment(folder))
    assert workload is not None
    await has_channels(agent, 1)
    yield training
    await asyncio.to_thread(workload.close)


async def test_a_training_job_gives_the_device_up_and_goes_on_with_the_same_bits(
    training: Training, orchestrator: FakeOrchestrator, sim: SimConfig
) -> None:
    before = training.digest()
    saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    taken = Arena.open(sim.directory).used_bytes(0)
    back = await orchestrator.asks("RESTORE", "17", "1-2")

    assert (saved.ok, saved.context, taken) == (True, "saved", 0)
    assert saved.bytes >= sum(p.nbytes for p in training.model.parameters())
    assert (back.ok, back.context) == (True, "resident")
    assert training.digest() == before
    alone = Training()
    assert [alone.step() for _ in range(3)][1:] == [training.step() for _ in range(2)]


async def test_state_that_does_not_fit_in_host_memory_goes_to_the_sites_disk(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    spill = folder / "spill"
    (spill / ".ranks-16").mkdir(parents=True)  # of an agent that was killed
    where = config(folder, orchestrator.address, host_memory_gib=1 / (1 << 20), spill_dir=str(spill))

    async with running(where, sim, SimBackend("n1", sim, spill)) as agent:
        left = list(spill.iterdir())
        async with registered(agent, folder, sim) as training:
            before = training.digest()
            saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
            context, there = agent._state.jobs["17"].context, list(spill.iterdir())
            back = await orchestrator.asks("RESTORE", "17", "1-2")
            again = await orchestrator.asks("SNAPSHOT", "17", "1-3")
            spilled = agent._state.jobs["17"].context.spilled
            await orchestrator.asks("RESTORE", "17", "1-4")
            after = training.digest()

    assert (left, there) == ([], [])
    assert (saved.ok, saved.context, context.spilled, context.saved_by) == (
        True,
        "saved",
        True,
        "app_channel",
    )
    assert (back.ok, again.ok, spilled) == (True, True, True)
    assert after == before


async def test_ranks_that_cannot_save_on_disk_are_refused_with_the_numbers(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnSim, "spills", False)
    spill = folder / "spill"
    spill.mkdir()
    where = config(folder, orchestrator.address, host_memory_gib=1 / (1 << 20), spill_dir=str(spill))

    async with running(where, sim, SimBackend("n1", sim, spill)) as agent, registered(agent, folder, sim):
        refused = await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert (refused.ok, refused.context) == (False, "resident")
    assert "do not fit in host memory" in refused.error
