"""Named copies of chosen memory, over the v1alpha1 service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from slurm_interleave.client.core.ranges import as_tags
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.client.workload import Rank, Workload
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.node_agent.channel import has_channels
from tests.node_agent.fakes import (
    FakeOrchestrator,
    config,
    device_of,
    environment,
    hook,
    running,
    start_job,
)
from tests.node_agent.snapshot_calls import channel, device, load, refusal, save, state, stub

__all__ = ["channel", "device", "stub"]


def wanted(*regions: tuple[int, int], name: str = "", pid: int = 0) -> v1.BackendConfig:
    named = [v1.MemoryRegion(pid=pid or os.getpid(), address=at, size_bytes=size) for at, size in regions]
    return v1.BackendConfig(memory_regions=v1.MemoryRegionsBackendConfig(regions=named, snapshot_name=name))


async def test_named_copies_are_swapped_while_the_job_runs(stub: Any, device: SimDevice) -> None:
    buffer = device.put(np.full(4096, 1, np.uint8))
    part = (buffer.address, 4096)

    saved = await save(stub, backend_config=wanted(part, name="one"))
    buffer.set(np.full(4096, 2, np.uint8))
    await save(stub, backend_config=wanted(part))
    back = await load(stub, backend_config=wanted(part, name="one"))
    first = buffer.get()[0]
    await load(stub, backend_config=wanted(part, name="17"))  # the name is the job's where none is given

    assert (saved.status, saved.storage_bytes) == (v1.OPERATION_STATUS_COMPLETE, 4096)
    assert (back.status, first, buffer.get()[0]) == (v1.OPERATION_STATUS_COMPLETE, 1, 2)
    assert await state(stub) == v1.JOB_STATE_RUNNING


@pytest.mark.parametrize(
    ("regions", "error"),
    [
        ([], "no regions are named"),
        ([(1 << 40, 0)], "a region has no bytes"),
        ([(5, 8)], "has no 8 bytes at 0x5"),
    ],
)
async def test_what_cannot_be_copied_fails_and_leaves_the_job_running(
    stub: Any, device: SimDevice, regions: list[tuple[int, int]], error: str
) -> None:
    device.put(np.zeros(10))

    failed = await save(stub, backend_config=wanted(*regions))

    assert failed.status == v1.OPERATION_STATUS_FAILED
    assert error in failed.error
    assert await state(stub) == v1.JOB_STATE_RUNNING


async def test_ranges_are_of_a_job_on_its_devices(stub: Any, device: SimDevice) -> None:
    buffer = device.put(np.zeros(10))
    await save(stub)
    config = wanted((buffer.address, 8))

    code, text = await refusal(stub.Snapshot(v1.SnapshotRequest(job_id="17", backend_config=config)))
    again, _ = await refusal(stub.Restore(v1.RestoreRequest(job_id="17", backend_config=config)))

    assert (code, again) == (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.FAILED_PRECONDITION)
    assert "the job is saved" in text


async def test_ranges_are_brought_back_whoever_else_is_on_the_devices(
    stub: Any, device: SimDevice, folder: Path, sim: SimConfig
) -> None:
    """The memory is the job's already: nothing comes to the devices by it."""
    buffer = device.put(np.full(4096, 1, np.uint8))
    await start_job(folder, "18")
    device_of(sim, "18").put(np.zeros(10))
    part = wanted((buffer.address, 4096), name="x")

    await save(stub, backend_config=part)
    buffer.set(np.full(4096, 2, np.uint8))
    back = await load(stub, backend_config=part)

    assert (back.status, buffer.get()[0]) == (v1.OPERATION_STATUS_COMPLETE, 1)


async def test_a_copy_counts_whole_though_a_part_of_it_was_brought_back(
    stub: Any, device: SimDevice, agent: Agent
) -> None:
    buffer = device.put(np.zeros(8192, np.uint8))
    parts = (buffer.address, 4096), (buffer.address + 4096, 4096)

    await save(stub, backend_config=wanted(*parts, name="x"))
    back = await load(stub, backend_config=wanted(parts[0], name="x"))

    assert back.storage_bytes == 4096
    assert agent._state.jobs["17"].copies == {"x": 8192}


class Writes:
    """An application that writes down what it is told."""

    tags = ("model",)
    can_discard = False
    arena_bytes = 0

    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []

    def suspend(self, tags: Sequence[str], *, discard: bool) -> None:
        assert not discard
        self.told.append(("suspend", list(tags)))

    def resume(self, tags: Sequence[str]) -> None:
        self.told.append(("resume", list(tags)))
        raise LookupError("no such copy")


async def test_an_application_with_a_channel_copies_its_own_memory(
    stub: Any, agent: Agent, device: SimDevice, folder: Path
) -> None:
    device.put(np.zeros(10))
    app = Writes()
    workload = Workload.from_env(app, Rank(), environment(folder))
    assert workload is not None
    await has_channels(agent, 1)
    saved = await save(stub, backend_config=wanted((0x7F00, 4096), name="x"))
    failed = await load(stub, backend_config=wanted((0x7F00, 4096), name="x"))
    stranger = await save(stub, backend_config=wanted((0x7F00, 4096), pid=1))
    await asyncio.to_thread(workload.close)

    tags = as_tags("x", [(0x7F00, 4096)])
    assert app.told == [("suspend", tags), ("resume", tags)]
    assert saved.status == v1.OPERATION_STATUS_COMPLETE
    assert (failed.status, failed.error) == (v1.OPERATION_STATUS_FAILED, "LookupError: no such copy")
    assert stranger.error == "job 17: process 1 has no workload channel"
    assert await state(stub) == v1.JOB_STATE_RUNNING


async def test_a_node_that_copies_no_ranges_says_so(
    folder: Path, sim: Any, orchestrator: FakeOrchestrator
) -> None:
    where = config(folder, orchestrator.address, backend="noop")
    async with running(where, sim, NoopBackend("n1", 1)):
        await start_job(folder)
        async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as link:
            request = v1.SnapshotRequest(job_id="17", backend_config=wanted((1, 1)))
            code, text = await refusal(v1_rpc.SnapshotAgentServiceStub(link).Snapshot(request))

    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "backend memory_regions is off on this node: [agent] backend = 'noop'" in text


async def test_copies_count_among_the_saved_state_of_the_node_also_after_a_restart(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    where = config(folder, orchestrator.address, host_memory_gib=12288 / 2**30)

    async def copied(name: str, size: int) -> str:
        async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as link:
            stub = v1_rpc.SnapshotAgentServiceStub(link)
            return str((await save(stub, backend_config=wanted((buffer.address, size), name=name))).error)

    async with running(where, sim, SimBackend("n1", sim)):
        await start_job(folder)
        buffer = device_of(sim).put(np.full(8192, 1, np.uint8))
        first, again, second = await copied("a", 4096), await copied("a", 8192), await copied("b", 8192)
    async with running(where, sim, SimBackend("n1", sim)):
        small, same, full = await copied("b", 4096), await copied("a", 8192), await copied("c", 1)
        whole = await orchestrator.asks("SNAPSHOT", "17", "1-1")
        await hook(folder, verb="job-end", job="17")
        await start_job(folder)
        buffer = device_of(sim).put(np.full(8192, 1, np.uint8))
        later = await copied("c", 8192)

    assert [first, again, small, same, later] == [""] * 5
    assert (whole.ok, whole.context) == (False, "resident")
    for error, taken in ((second, 8192), (full, 12288), (whole.error, 12288)):
        assert "do not fit in host memory: of host_memory_gib = 1.14441e-05" in error
        assert f"{taken / 2**20:.1f} MiB are taken" in error
