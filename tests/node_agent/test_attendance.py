"""The agent knows which processes take turns for a job, and says when they are gone."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.connect import open_aio_channel
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.node_agent.fakes import FakeOrchestrator, config, environment, running, start_job

JOB = f"attend-{os.getpid()}"  # no other test's process has this job id
Process = subprocess.Popen[bytes]


def process_of(job: str) -> Process:
    return subprocess.Popen(["sleep", "60"], env={**os.environ, "INTERLEAVE_JOB_ID": job})


@pytest.fixture
def batch() -> Iterator[Process]:
    """The job's script, which takes no turns and lives on."""
    with process_of(JOB) as process:
        yield process
        process.kill()


@pytest.fixture
def taker() -> Iterator[Process]:
    """The job's process that takes turns."""
    with process_of(JOB) as process:
        yield process
        process.kill()


async def attend(folder: Path, pid: int) -> None:
    async with open_aio_channel(environment(folder, JOB)["INTERLEAVE_SOCKET"]) as channel:
        stub: Any = rpc.JobAgentStub(channel)  # type: ignore[no-untyped-call]
        await stub.Attend(pb.AttendRequest(pid=pid))


async def said(orchestrator: FakeOrchestrator) -> str:
    return str((await orchestrator.hears("started")).attendance)


def end(process: Process) -> None:
    process.kill()
    process.wait()


async def test_it_tells_when_the_process_that_takes_turns_comes_and_when_it_is_gone(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator, batch: Process, taker: Process
) -> None:
    await start_job(folder, JOB)
    assert await said(orchestrator) == ""

    await attend(folder, taker.pid)
    assert await said(orchestrator) == "present"

    end(taker)
    await agent._watch.look()
    assert await said(orchestrator) == "gone"

    with process_of(JOB) as another:
        await attend(folder, another.pid)
        assert await said(orchestrator) == "present"
        another.kill()


async def test_a_job_is_attended_while_one_of_its_processes_takes_turns(
    agent: Agent, folder: Path, batch: Process, taker: Process
) -> None:
    await start_job(folder, JOB)
    await attend(folder, taker.pid)
    await attend(folder, batch.pid)

    end(taker)
    await agent._watch.look()

    assert agent._state.jobs[JOB].attendance.value == "present"


async def test_it_remembers_them_across_its_own_restart(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, batch: Process, taker: Process
) -> None:
    where = config(folder, orchestrator.address)
    async with running(where, sim, SimBackend("n1", sim)):
        await orchestrator.hears("hello")
        await start_job(folder, JOB)
        await attend(folder, taker.pid)
    end(taker)

    async with running(where, sim, SimBackend("n1", sim)) as again:
        hello = await orchestrator.hears("hello")
        assert [job.attendance for job in hello.jobs] == ["present"]
        await again._watch.look()
        assert await asyncio.wait_for(gone(orchestrator), 30)


async def gone(orchestrator: FakeOrchestrator) -> bool:
    while await said(orchestrator) != "gone":
        pass
    return True


async def test_a_process_of_another_job_or_none_cannot_attend(
    agent: Agent, folder: Path, batch: Process
) -> None:
    await start_job(folder, JOB)
    with process_of("another") as stranger:
        for pid in (stranger.pid, os.getpid(), 0, -1, (1 << 31) - 1):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await attend(folder, pid)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        stranger.kill()

    assert agent._state.jobs[JOB].clients == ()
