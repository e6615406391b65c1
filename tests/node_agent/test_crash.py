"""The agent as a real process, killed at the worst moment."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.settings import SimConfig
from tests.node_agent.agent_process import PROGRAM, AgentProcess
from tests.node_agent.fakes import FakeOrchestrator, device_of, environment, start_job, until

MIB = 1 << 20


@pytest_asyncio.fixture
async def process(folder: Path, orchestrator: FakeOrchestrator) -> AsyncIterator[AgentProcess]:
    async with AsyncExitStack() as stack:
        agent = AgentProcess(folder, orchestrator.address)
        await agent.start()
        stack.push_async_callback(agent.stop, signal.SIGKILL)
        await orchestrator.hears("hello")
        yield agent


@pytest.mark.parametrize(
    ("verb", "before", "during"),
    [("SNAPSHOT", Context.RESIDENT, Context.SAVING), ("RESTORE", Context.SAVED, Context.RESTORING)],
)
async def test_an_agent_killed_in_a_move_tells_the_truth_and_does_it_when_asked_again(
    process: AgentProcess,
    folder: Path,
    sim: SimConfig,
    orchestrator: FakeOrchestrator,
    verb: str,
    before: Context,
    during: Context,
) -> None:
    await start_job(folder)
    attempt = (await orchestrator.hears("started")).attempt
    values = np.random.default_rng(1).integers(0, 256, 8 * MIB, dtype=np.uint8)
    buffer = device_of(sim).put(values)
    if verb == "RESTORE":
        await orchestrator.asks("SNAPSHOT", "17", "1-1")
    await process.stop(signal.SIGTERM)
    await process.start(gib_s=0.001)
    await orchestrator.hears("hello")

    orchestrator.operate(verb, "17", "1-2", attempt)
    await until(sim, during)
    await process.stop(signal.SIGKILL)
    await process.start()
    hello = await orchestrator.hears("hello")
    done = await orchestrator.asks(verb, "17", "1-2", attempt)
    await orchestrator.asks("RESTORE", "17", "1-3", attempt)

    assert [(job.job_id, job.attempt, job.context) for job in hello.jobs] == [("17", attempt, before.value)]
    assert done.ok
    assert np.array_equal(buffer.get(), values)


async def test_an_agent_killed_between_moves_keeps_what_is_saved_and_who_is_here(
    process: AgentProcess, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    await start_job(folder, "18")
    token = environment(folder)["INTERLEAVE_TOKEN"]
    device_of(sim).put(np.zeros(10))
    await orchestrator.asks("SNAPSHOT", "17", "1-1")

    await process.stop(signal.SIGKILL)
    await process.start()
    hello = await orchestrator.hears("hello")

    assert [(job.job_id, job.context, job.bytes) for job in hello.jobs] == [
        ("17", "saved", 4096),
        ("18", "none", 0),
    ]
    assert environment(folder)["INTERLEAVE_TOKEN"] == token


async def test_what_the_noop_backend_saved_survives_a_kill(
    process: AgentProcess, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await process.stop(signal.SIGTERM)
    await process.start(backend="noop")
    await start_job(folder)
    await orchestrator.asks("SNAPSHOT", "17", "1-1")

    await process.stop(signal.SIGKILL)
    await process.start(backend="noop")
    hello = await orchestrator.hears("hello")

    assert [(job.job_id, job.context) for job in hello.jobs] == [("17", "saved")]


async def test_folders_of_jobs_that_nobody_knows_are_removed(
    process: AgentProcess, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await process.stop(signal.SIGKILL)
    stray = folder / "run" / "jobs" / "99"
    stray.mkdir(parents=True)
    (stray / "environment").write_text("INTERLEAVE_TOKEN=old\n")

    await process.start()

    assert not stray.exists()


async def test_sigterm_stops_it_cleanly(process: AgentProcess, folder: Path) -> None:
    await start_job(folder)

    assert await process.stop(signal.SIGTERM) == 0
    assert not (folder / "run" / "agent.sock").exists()


async def test_bad_settings_are_one_line_that_says_what_is_wrong(folder: Path) -> None:
    settings = folder / "interleave.toml"
    settings.write_text('[agent]\nbackend = "rocm"\n')

    process = await asyncio.create_subprocess_exec(
        PROGRAM, "--config", settings, stderr=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    _, said = await process.communicate()

    assert process.returncode == 1
    reason = "[agent] backend = 'rocm' is not known; known are sim, noop, cuda"
    assert said.decode() == f"interleave-agent: {reason}\n"


async def test_a_second_agent_for_a_node_is_refused_with_the_pid_of_the_first(
    process: AgentProcess, folder: Path
) -> None:
    second = await asyncio.create_subprocess_exec(
        PROGRAM, "--config", folder / "interleave.toml", "--node", "n1", stderr=asyncio.subprocess.PIPE
    )
    _, said = await second.communicate()

    assert second.returncode == 1
    assert f"pid {process.pid}" in said.decode()
    assert said.count(b"\n") == 1
    assert (await start_job(folder))["ok"] is True


async def test_what_is_made_is_closed_to_users_but_for_their_own_way(
    process: AgentProcess, folder: Path
) -> None:
    await start_job(folder)

    modes = {
        name: (folder / name).stat().st_mode & 0o777
        for name in ("run", "run/jobs", "run/jobs/17", "sim", "sim/host", "state", "state/agent.json")
    }

    assert modes == {
        "run": 0o755,
        "run/jobs": 0o711,
        "run/jobs/17": 0o711,
        "sim": 0o777,
        "sim/host": 0o777,
        "state": 0o700,
        "state/agent.json": 0o600,
    }


async def test_the_agent_may_open_as_many_files_as_the_host_allows(process: AgentProcess) -> None:
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)

    assert soft == hard
