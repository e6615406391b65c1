"""What moves the state of a job, as its submission asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.workload import Rank, Workload
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent.channel import HostCopy, has_channels
from tests.node_agent.fakes import FakeOrchestrator, device_of, environment, start_job


@pytest.mark.parametrize("asked", ["app_channel+sim", "sim"])
async def test_a_job_can_ask_for_its_movers(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, asked: str
) -> None:
    await start_job(folder, backend=asked)
    device = device_of(sim)
    rest = device.put(np.arange(10))
    state = HostCopy(device, 1)
    workload = Workload.from_env(state, Rank(), environment(folder))
    await has_channels(agent, 1)

    saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    told = state.suspended.is_set()
    taken = [device.used_bytes, Arena.open(sim.directory).memory_of("17").saved_bytes]
    back = await orchestrator.asks("RESTORE", "17", "1-2")

    assert (saved.ok, saved.bytes, told) == (True, 8192, asked != "sim")
    assert taken == [0, 4096 if told else 8192]
    assert back.ok
    assert state.buffer is not None
    assert (rest.get().sum(), state.buffer.get()[0]) == (45, 1)
    assert workload is not None
    await asyncio.to_thread(workload.close)


@pytest.mark.parametrize("asked", ["cuda", "sim+app_channel", "app_channel+app_channel", "app_channel+", "x"])
async def test_movers_that_this_node_cannot_use_are_refused_at_the_start(
    agent: Agent, folder: Path, asked: str
) -> None:
    reply = await start_job(folder, backend=asked)

    assert not reply["ok"]
    assert "17" not in agent._state.jobs
    assert f"backend {asked!r} cannot be used on this node; known are app_channel" in str(reply["error"])
