from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.contexts import JobContext
from tests.metrics import scrape, scraped
from tests.node_agent.fakes import FakeOrchestrator, config, device_of, running, start_job

MIB = 1 << 20
PREFIX = "interleave_agent"


@pytest.fixture
async def agent(folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator) -> AsyncIterator[Agent]:
    settings = config(folder, orchestrator.address, metrics="127.0.0.1:0")
    async with running(settings, sim, SimBackend("n1", sim)) as agent:
        await orchestrator.hears("hello")
        yield agent


async def test_moves_and_saved_state_are_counted(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    device_of(sim).put(np.zeros(MIB, dtype=np.uint8))
    went_well = {"backend": "sim", "outcome": "ok"}

    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    count = f"{PREFIX}_operation_seconds_count"
    saved = await scraped(agent.metrics_port, count, 1, operation="snapshot", **went_well)
    await orchestrator.asks("RESTORE", "17", "1-2")
    back = await scraped(agent.metrics_port, count, 1, operation="restore", **went_well)

    assert saved.has(count, operation="snapshot", backend="sim", outcome="failed")
    assert saved.value(f"{PREFIX}_operation_bytes_total", operation="snapshot", backend="sim") == MIB
    assert saved.value(f"{PREFIX}_saved_bytes", place="memory") == MIB
    assert saved.value(f"{PREFIX}_contexts", state="saved") == 1
    assert saved.value(f"{PREFIX}_orchestrator_connected") == 1
    assert back.value(f"{PREFIX}_operation_bytes_total", operation="restore", backend="sim") == MIB
    assert back.value(f"{PREFIX}_saved_bytes", place="memory") == 0
    assert back.value(f"{PREFIX}_contexts", state="resident") == 1


async def test_a_move_that_fails_is_counted_apart(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    device_of(sim).put(np.zeros(MIB, dtype=np.uint8))
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    [copy] = [path for path in sim.directory.glob("host/17/*") if path.is_file()]
    copy.unlink()

    await orchestrator.asks("RESTORE", "17", "1-2")

    failed = {"operation": "restore", "backend": "sim", "outcome": "faulted"}
    await scraped(agent.metrics_port, f"{PREFIX}_operation_seconds_count", 1, **failed)


@pytest.mark.parametrize("state", [Context.SAVED, Context.RESTORING])
async def test_what_is_spilled_in_part_counts_where_each_part_is(
    agent: Agent, folder: Path, state: Context
) -> None:
    await start_job(folder)
    agent._state.jobs["17"].context = JobContext(state, 5 * MIB, spilled=True, in_memory=2 * MIB)

    told = await scrape(agent.metrics_port)

    assert told.value(f"{PREFIX}_saved_bytes", place="memory") == 2 * MIB
    assert told.value(f"{PREFIX}_saved_bytes", place="disk") == 3 * MIB


async def test_an_agent_without_the_orchestrator_says_so(
    agent: Agent, orchestrator: FakeOrchestrator
) -> None:
    await orchestrator.stop()

    await scraped(agent.metrics_port, f"{PREFIX}_orchestrator_connected", 0)
