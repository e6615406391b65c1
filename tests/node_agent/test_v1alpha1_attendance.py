"""Callers of v1alpha1 say nothing of themselves: the agent sees who stays connected to the job's socket."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.core.states import Attendance
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as pb
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as rpc
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent.fakes import FakeOrchestrator, environment, start_job
from tests.node_agent.test_attendance import end, process_of

JOB = f"v1-{os.getpid()}"  # no other test's process has this job id
CALLER = """
import sys
import grpc
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as pb
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as rpc
channel = grpc.insecure_channel(sys.argv[1])
stub = rpc.TimeSliceOrchestratorServiceStub(channel)
for name in sys.argv[4:]:
    stub.Acquire(pb.AcquireRequest(job_id=sys.argv[2], group_id=name))
print("granted", flush=True)
if sys.argv[3] == "stays":
    sys.stdin.read()
"""
Process = subprocess.Popen[bytes]


@pytest.fixture(autouse=True)
def script(orchestrator: FakeOrchestrator) -> Iterator[None]:
    """The job's script, which takes no turns and lives on."""
    orchestrator.may_answer.set()
    with process_of(JOB) as process:
        yield
        process.kill()


def begun(address: str, how: str, *names: str) -> Process:
    variables, pipe = {**os.environ, "INTERLEAVE_JOB_ID": JOB}, subprocess.PIPE
    argv = [sys.executable, "-c", CALLER, address, JOB, how, *(names or ["demo"])]
    return subprocess.Popen(argv, env=variables, stdin=pipe, stdout=pipe)


async def caller(folder: Path, how: str, *names: str) -> Process:
    """Return a process of the job that has been granted *names*, or its group."""
    started = begun(environment(folder, JOB)["TIMESLICE_ORCH_ADDR"], how, *names)
    assert started.stdout is not None
    assert await asyncio.to_thread(started.stdout.readline) == b"granted\n"
    return started


async def looked(agent: Agent) -> Attendance:
    """Return what is known after two looks."""
    for _ in range(2):
        await agent._watch.look()
    return agent._state.jobs[JOB].attendance


async def test_a_caller_that_keeps_its_connection_is_there_until_it_ends(agent: Agent, folder: Path) -> None:
    await start_job(folder, JOB)
    with await caller(folder, "stays") as first:
        assert agent._state.jobs[JOB].attendance is Attendance.UNKNOWN
        assert await looked(agent) is Attendance.PRESENT

        end(first)
        assert await looked(agent) is Attendance.GONE

    with await caller(folder, "stays") as second:
        assert await looked(agent) is Attendance.PRESENT
        end(second)


async def test_a_caller_that_comes_for_one_call_says_nothing_by_its_end(agent: Agent, folder: Path) -> None:
    await start_job(folder, JOB)
    with await caller(folder, "goes"):
        pass

    assert await looked(agent) is Attendance.UNKNOWN


async def test_whoever_was_there_before_does_not_make_one_call_an_absence(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, JOB)
    with await caller(folder, "stays") as first:
        assert await looked(agent) is Attendance.PRESENT
        end(first)
    assert await looked(agent) is Attendance.GONE

    with await caller(folder, "goes"):
        pass

    assert await looked(agent) is Attendance.UNKNOWN


async def test_a_name_that_a_process_held_which_is_gone_keeps_no_lease_of_the_next(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, JOB)
    with await caller(folder, "stays", "demo", "demo/sampler") as first:
        assert await looked(agent) is Attendance.PRESENT
        end(first)

    async with grpc.aio.insecure_channel(environment(folder, JOB)["TIMESLICE_ORCH_ADDR"]) as channel:
        stub: Any = rpc.TimeSliceOrchestratorServiceStub(channel)
        await stub.Acquire(pb.AcquireRequest(job_id=JOB, group_id="demo"))
        await stub.Yield(pb.YieldRequest(job_id=JOB, group_id="demo"))

    assert orchestrator.yields.get_nowait()[0].group_id == "demo"


async def test_a_name_that_a_living_process_holds_keeps_the_lease_that_another_yields(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, JOB)
    with await caller(folder, "stays", "demo/sampler") as first:
        assert await looked(agent) is Attendance.PRESENT

        async with grpc.aio.insecure_channel(environment(folder, JOB)["TIMESLICE_ORCH_ADDR"]) as channel:
            stub: Any = rpc.TimeSliceOrchestratorServiceStub(channel)
            await stub.Acquire(pb.AcquireRequest(job_id=JOB, group_id="demo"))
            await stub.Yield(pb.YieldRequest(job_id=JOB, group_id="demo"))

        assert orchestrator.yields.empty()
        end(first)
