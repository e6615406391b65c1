"""Named copies that the ranks of a job make of their own memory, told by their workload channels."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from slurm_interleave.client.core.ranges import as_tags
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.workload import PID_KEY, RANK_KEY
from slurm_interleave.node_agent.admission import Limit
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent.channel import OFFLOAD, App, device, finished, has_channels, stub
from tests.node_agent.snapshot_calls import state

__all__ = ["device", "stub"]
PIDS = (101, 102)


class RankApp(App):
    """Rank *rank* of two."""

    def __init__(self, stub: Any, rank: int) -> None:
        where = ((RANK_KEY, f"{rank}/2"), (PID_KEY, str(PIDS[rank])))
        self.stream = stub.WorkloadChannel(metadata=where)


@pytest_asyncio.fixture
async def ranks(stub: Any, agent: Agent, device: SimDevice) -> AsyncIterator[list[RankApp]]:
    device.put(np.zeros(10))
    apps = [RankApp(stub, rank) for rank in range(2)]
    for app in apps:
        await app.register(supported_modes=[OFFLOAD])
    await has_channels(agent, 2)
    yield apps


def asked(stub: Any, verb: str, *regions: tuple[int, int, int]) -> Any:
    """Have the ranges, each of a process, copied under x, or back."""
    named = [v1.MemoryRegion(pid=pid, address=at, size_bytes=size) for pid, at, size in regions]
    config = v1.BackendConfig(memory_regions=v1.MemoryRegionsBackendConfig(regions=named, snapshot_name="x"))
    request = {"Snapshot": v1.SnapshotRequest, "Restore": v1.RestoreRequest}[verb]
    return getattr(stub, verb)(request(job_id="17", backend_config=config))


def tags(command: v1.AgentCommand) -> list[str]:
    return list(command.snapshot.tags or command.restore.tags)


verbs = pytest.mark.parametrize("verb", ["Snapshot", "Restore"])


@verbs
async def test_each_rank_copies_all_ranges_of_its_process_and_no_others(
    stub: Any, ranks: list[RankApp], verb: str
) -> None:
    operation = await asked(stub, verb, (101, 0x1000, 8), (102, 0x2000, 16), (101, 0x3000, 32))
    heard = [await rank.hears() for rank in ranks]
    for rank, command in zip(ranks, heard, strict=True):
        await rank.answers(command)
    done = await finished(stub, operation)

    assert [command.WhichOneof("command") for command in heard] == [verb.lower()] * 2
    assert tags(heard[0]) == as_tags("x", [(0x1000, 8), (0x3000, 32)])
    assert tags(heard[1]) == as_tags("x", [(0x2000, 16)])
    assert (done.status, done.storage_bytes) == (v1.OPERATION_STATUS_COMPLETE, 8 + 16 + 32)


@verbs
@pytest.mark.parametrize("fails", [0, 1])
async def test_one_rank_that_fails_fails_the_copy_and_leaves_the_job_on_its_devices(
    stub: Any, ranks: list[RankApp], agent: Agent, verb: str, fails: int
) -> None:
    operation = await asked(stub, verb, (101, 0x1000, 8), (102, 0x2000, 16))
    for number, rank in enumerate(ranks):
        await rank.answers(await rank.hears(), "no such range" if number == fails else "")
    done = await finished(stub, operation)

    assert (done.status, done.error) == (v1.OPERATION_STATUS_FAILED, "no such range")
    assert await state(stub) == v1.JOB_STATE_RUNNING
    assert agent._state.jobs["17"].copies == {}


async def test_a_process_without_a_channel_is_named_and_nobody_is_told_anything(
    stub: Any, ranks: list[RankApp]
) -> None:
    operation = await asked(stub, "Snapshot", (101, 0x1000, 8), (103, 0x2000, 16))
    done = await finished(stub, operation)
    after = await asked(stub, "Snapshot", (101, 0x3000, 8))
    first = await ranks[0].hears()
    await ranks[0].answers(first)

    assert done.error == "job 17: process 103 has no workload channel"
    assert tags(first) == as_tags("x", [(0x3000, 8)])
    assert (await finished(stub, after)).status == v1.OPERATION_STATUS_COMPLETE


async def test_a_copy_counts_in_the_memory_of_the_job_whose_ranks_make_it(
    stub: Any, ranks: list[RankApp], agent: Agent
) -> None:
    agent._room._limits = lambda _: [Limit("/job_17", 1000, 500, 0)]

    done = await finished(stub, await asked(stub, "Snapshot", (101, 0x1000, 501)))

    assert "job 17: " in done.error
    assert "/job_17" in done.error


async def test_a_copy_that_the_agent_makes_does_not(stub: Any, agent: Agent, device: SimDevice) -> None:
    buffer = device.put(np.zeros(501))
    agent._room._limits = lambda _: [Limit("/job_17", 1000, 500, 0)]

    done = await finished(stub, await asked(stub, "Snapshot", (os.getpid(), buffer.address, 501)))

    assert done.error == ""


@verbs
async def test_a_copy_that_is_cancelled_is_not_waited_for(
    stub: Any, ranks: list[RankApp], agent: Agent, verb: str
) -> None:
    operation = await asked(stub, verb, (101, 0x1000, 8))
    await ranks[0].hears()

    agent._operations.cancel("17")
    done = await asyncio.wait_for(finished(stub, operation), 10)

    assert (done.status, done.error) == (v1.OPERATION_STATUS_FAILED, "cancelled")
    assert await state(stub) == v1.JOB_STATE_RUNNING


@verbs
async def test_a_copy_that_no_rank_answers_fails_at_its_deadline_and_faults_nobody(
    stub: Any, ranks: list[RankApp], agent: Agent, verb: str
) -> None:
    agent._operations._timeout_s = 0.2

    done = await finished(stub, await asked(stub, verb, (101, 0x1000, 8)))

    assert done.error == "the application gave no answer within 0.2 s"
    assert await state(stub) == v1.JOB_STATE_RUNNING
