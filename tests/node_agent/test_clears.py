"""Discards by order: the exit from a fault, as the agent carries it out."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.errors import NotResident
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.contexts import JobContext, Outcome, Verb, after
from tests.node_agent.agent_process import AgentProcess
from tests.node_agent.fakes import FakeOrchestrator, config, device_of, hook, running, start_job


@pytest_asyncio.fixture
async def device(agent: Agent, folder: Path, sim: SimConfig) -> SimDevice:
    """The device of job 17, which is registered."""
    await start_job(folder)
    return device_of(sim)


async def lose(orchestrator: FakeOrchestrator, sim: SimConfig, device: SimDevice) -> None:
    """Save what the job has, damage it, and try to bring it back."""
    device.put(np.arange(100))
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    [file] = (sim.directory / "host" / "17").iterdir()
    file.write_bytes(b"x" * file.stat().st_size)
    assert (await orchestrator.asks("RESTORE", "17", "1-2")).context == "faulted"


async def test_a_lost_context_is_discarded_and_the_job_may_load_anew(
    device: SimDevice, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await lose(orchestrator, sim, device)

    done = await orchestrator.asks("DISCARD", "17", "1-3")
    again = device.put(np.ones(10))
    saved = await orchestrator.asks("SNAPSHOT", "17", "1-4")
    back = await orchestrator.asks("RESTORE", "17", "1-5")

    assert (done.ok, done.context) == (True, "none")
    assert (saved.context, back.context) == ("saved", "resident")
    assert again.get().sum() == 10


async def test_the_jobs_process_is_told_that_its_old_buffers_are_gone(
    device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    buffer = device.put(np.ones(10))

    await orchestrator.asks("DISCARD", "17", "1-1")

    with pytest.raises(NotResident, match="was freed"):
        buffer.get()


async def test_work_that_runs_on_the_device_ends_before_its_memory_is_freed(
    device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    buffer, began, go_on = device.put(np.ones(10)), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def kernel(values: np.ndarray) -> float:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        values[...] = 7
        return float(values.sum())

    working = asyncio.create_task(asyncio.to_thread(device.run, "kernel", kernel, buffer))
    await began.wait()
    discarding = asyncio.create_task(orchestrator.asks("DISCARD", "17", "1-1"))
    await asyncio.to_thread(until_moving, device.arena)
    assert device.used_bytes > 0
    go_on.set()

    assert await working == 70
    assert (await discarding).ok
    assert device.used_bytes == 0


async def test_work_that_does_not_end_keeps_its_memory_and_the_fault(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    settings = config(folder, orchestrator.address, operation_timeout_s=0.1)
    async with running(settings, sim, SimBackend("n1", sim)):
        await start_job(folder)
        arena = Arena.open(sim.directory)
        device = SimDevice(arena, 0, "17")
        await lose(orchestrator, sim, device)
        with arena.using("17", []):
            done = await orchestrator.asks("DISCARD", "17", "1-3")
        later = await orchestrator.asks("SNAPSHOT", "17", "1-4")

    assert not done.ok
    assert "still works" in done.error
    assert later.context == "faulted"
    assert "checksum" in later.error


async def test_a_job_id_that_comes_again_has_no_fault(
    device: SimDevice, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    first = (await orchestrator.hears("started")).attempt
    await lose(orchestrator, sim, device)
    await hook(folder, verb="job-end", job="17")
    await start_job(folder)

    started = await orchestrator.hears("started")

    assert (started.context, started.fault) == ("none", "")
    assert started.attempt != first
    assert (await orchestrator.asks("SNAPSHOT", "17", "1-3", first)).context == "none"


@pytest_asyncio.fixture
async def process(folder: Path, orchestrator: FakeOrchestrator) -> AsyncIterator[AgentProcess]:
    agent = AgentProcess(folder, orchestrator.address)
    await agent.start()
    await orchestrator.hears("hello")
    yield agent
    await agent.stop(signal.SIGKILL)


@pytest.mark.parametrize("cleared", [False, True])
async def test_a_fault_survives_a_kill_of_the_agent_and_so_does_its_end(
    process: AgentProcess, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, cleared: bool
) -> None:
    await start_job(folder)
    await lose(orchestrator, sim, device_of(sim))
    if cleared:
        await orchestrator.asks("DISCARD", "17", "1-3")

    await process.stop(signal.SIGKILL)
    await process.start()

    [job] = (await orchestrator.hears("hello")).jobs
    assert (job.context, bool(job.fault)) == (("none", False) if cleared else ("faulted", True))


def test_a_discard_that_failed_ends_no_fault() -> None:
    before = JobContext(Context.FAULTED, fault="the driver crashed")

    failed = Outcome(Context.RESIDENT, error="its process lives")

    assert after(failed, Verb.DISCARD, before, saved_by="") == before


def until_moving(arena: Arena) -> None:
    while not arena.look().moves:
        pass
