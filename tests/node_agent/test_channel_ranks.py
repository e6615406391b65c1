"""Jobs of several ranks, each with state and a workload channel of its own, and the client's side of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.client.workload import Rank, Workload
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.node_agent.channel import HostCopy, has_channels
from tests.node_agent.fakes import (
    FakeOrchestrator,
    config,
    device_of,
    environment,
    eventually,
    running,
    start_job,
)


class Job:
    """A job with two ranks that have registered."""

    def __init__(self, folder: Path, sim: SimConfig) -> None:
        device = device_of(sim)
        self.states = [HostCopy(device, 1), HostCopy(device, 2)]
        served = [
            Workload.from_env(state, Rank(rank, 2), environment(folder))
            for rank, state in enumerate(self.states)
        ]
        self.workloads = [workload for workload in served if workload is not None]

    def values(self) -> list[int]:
        return [int(state.buffer.get()[0]) if state.buffer else 0 for state in self.states]

    def close(self) -> None:
        for workload in self.workloads:
            workload.close()


@pytest_asyncio.fixture
async def job(agent: Agent, folder: Path, sim: SimConfig) -> AsyncIterator[Job]:
    await start_job(folder)
    job = Job(folder, sim)
    await has_channels(agent, 2)
    yield job
    await asyncio.to_thread(job.close)


async def test_all_ranks_are_saved_and_come_back(job: Job, orchestrator: FakeOrchestrator) -> None:
    saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    gone = job.values()
    back = await orchestrator.asks("RESTORE", "17", "1-2")

    assert (saved.ok, saved.context, saved.bytes) == (True, "saved", 8192)
    assert gone == [0, 0]
    assert (back.ok, back.context, job.values()) == (True, "resident", [1, 2])


async def test_if_one_rank_cannot_be_saved_the_others_come_back(
    job: Job, orchestrator: FakeOrchestrator
) -> None:
    job.states[1].cannot_suspend = "in the middle of a step"

    failed = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    job.states[1].cannot_suspend = ""
    again = await orchestrator.asks("SNAPSHOT", "17", "1-2")

    assert (failed.ok, failed.context) == (False, "resident")
    assert failed.error == "rank 1: RuntimeError: in the middle of a step"
    assert job.states[0].suspended.is_set()
    assert again.ok


async def test_if_one_rank_cannot_come_back_the_others_leave_again(
    job: Job, orchestrator: FakeOrchestrator
) -> None:
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    job.states[0].cannot_resume = "no room"

    failed = await orchestrator.asks("RESTORE", "17", "1-2")
    between = job.values()
    job.states[0].cannot_resume = ""
    again = await orchestrator.asks("RESTORE", "17", "1-3")

    assert (failed.ok, failed.context, failed.error) == (False, "saved", "rank 0: RuntimeError: no room")
    assert between == [0, 0]
    assert (again.ok, job.values()) == (True, [1, 2])


async def test_a_rank_that_can_neither_go_nor_come_back_faults_the_job(
    job: Job, orchestrator: FakeOrchestrator
) -> None:
    job.states[0].cannot_resume, job.states[1].cannot_suspend = "no room", "busy"

    failed = await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert (failed.ok, failed.context) == (False, "faulted")
    assert failed.error == "rank 1: RuntimeError: busy; and then, undoing it: RuntimeError: no room"


async def test_a_rank_that_is_away_is_named_when_the_time_is_up(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    where = config(folder, orchestrator.address, operation_timeout_s=0.2)
    async with running(where, sim, SimBackend("n1", sim)) as agent:
        await start_job(folder)
        job = Job(folder, sim)
        await has_channels(agent, 2)
        await asyncio.to_thread(job.workloads[1].close)
        await has_channels(agent, 1)

        failed = await orchestrator.asks("SNAPSHOT", "17", "1-1")

        assert (failed.ok, failed.context) == (False, "resident")
        assert failed.error == "job 17: of its 2 ranks here these have no workload channel: 1"
        await asyncio.to_thread(job.close)


async def test_a_context_that_ranks_hold_outlives_the_agent(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    where = config(folder, orchestrator.address)
    async with running(where, sim, SimBackend("n1", sim)) as agent:
        await start_job(folder)
        job = Job(folder, sim)
        await has_channels(agent, 2)
        await orchestrator.asks("SNAPSHOT", "17", "1-1")

    async with running(where, sim, SimBackend("n1", sim)):
        told = await orchestrator.hears("hello")
        back = await orchestrator.asks("RESTORE", "17", "2-1")  # before a rank has opened its channel anew

    assert [report.context for report in told.jobs] == ["saved"]
    assert (back.ok, job.values()) == (True, [1, 2])
    await asyncio.to_thread(job.close)


async def test_what_ranks_have_set_aside_is_known_once_they_have(
    job: Job, agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    before = agent._channels.set_aside("17")
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    after = agent._channels.set_aside("17")
    for workload in job.workloads:
        await asyncio.to_thread(workload.close)
    again = Workload.from_env(job.states[0], Rank(), environment(folder))

    async def is_again() -> bool:
        return [channel.speaker.ranks for channel in agent._channels.of("17")] == [1]

    await eventually(is_again)

    assert (before, after, agent._channels.set_aside("17")) == (0, 8192, 4096)
    assert again is not None
    await asyncio.to_thread(again.close)


async def test_another_number_of_ranks_is_another_set_of_ranks(
    job: Job, agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    alone = Workload.from_env(job.states[0], Rank(), environment(folder))

    async def is_alone() -> bool:
        return [channel.speaker.ranks for channel in agent._channels.of("17")] == [1]

    assert alone is not None
    await eventually(is_alone)
    await asyncio.to_thread(alone.close)


@pytest.mark.parametrize("rank", ["2/2", "x", "1", "-1/2"])
async def test_a_rank_that_cannot_be_is_refused(agent: Agent, folder: Path, rank: str) -> None:
    await start_job(folder)
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as channel:
        stub: Any = v1_rpc.SnapshotAgentServiceStub(channel)
        stream = stub.WorkloadChannel(metadata=(("interleave-rank", rank),))
        await stream.write(v1.WorkloadMessage(register=v1.RegisterWorkload(job_id="17")))

        with pytest.raises(grpc.aio.AioRpcError, match="is not a rank and the number of ranks") as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_command_under_way_is_answered_before_the_channel_closes(
    job: Job, orchestrator: FakeOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slowly(state: HostCopy, tags: Sequence[str], *, discard: bool) -> None:
        begun.set()
        may_end.wait()
        HostCopy.suspend(state, tags, discard=discard)

    monkeypatch.setattr(job.states[0], "suspend", slowly.__get__(job.states[0]))
    saving = asyncio.create_task(orchestrator.asks("SNAPSHOT", "17", "1-1"))
    await asyncio.to_thread(begun.wait)
    closing = asyncio.create_task(asyncio.to_thread(job.workloads[0].close))
    await asyncio.to_thread(job.workloads[0]._closed.wait)
    may_end.set()
    await closing

    saved = await saving
    assert (saved.ok, saved.context) == (True, "saved"), saved.error


def test_outside_of_a_job_nothing_is_registered() -> None:
    assert Workload.from_env(object(), environ={}) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, Rank(0, 1)),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}, Rank(3, 8)),
        ({"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2),2"}, Rank(1, 4)),
        ({"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2),2", "SLURM_NODEID": "2"}, Rank(1, 2)),
        ({"SLURM_LOCALID": "5", "SLURM_STEP_TASKS_PER_NODE": "2"}, Rank(0, 1)),
    ],
)
def test_a_rank_knows_itself_by_its_launcher(environ: dict[str, str], rank: Rank) -> None:
    assert Rank.from_env(environ) == rank
