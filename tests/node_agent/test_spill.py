"""Saved state that does not fit in host memory goes to disk, if the site has one for it."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
import pytest_asyncio

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import SimBuffer
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.node_agent import host_memory
from slurm_interleave.node_agent.admission import GIB, Disk, Node, disk_refusal
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.host_room import HostRoom
from slurm_interleave.node_agent.state import Job, Request, State
from tests.node_agent.agent_process import AgentProcess
from tests.node_agent.fakes import (
    FakeOrchestrator,
    config,
    device_of,
    environment,
    hook,
    running,
    start_job,
    until,
)
from tests.node_agent.snapshot_calls import load, save
from tests.node_agent.test_regions import wanted

MIB = 1 << 20
CAP_GIB = 1 / 1024  # so that 1 MiB of saved state fits in host memory
VALUES = np.random.default_rng(7).integers(0, 256, 2 * MIB, dtype=np.uint8)


@pytest.fixture
def spill(folder: Path) -> Path:
    path = folder / "spill"
    path.mkdir()
    return path


@pytest_asyncio.fixture
async def agent(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, spill: Path
) -> AsyncIterator[Agent]:
    where = config(folder, orchestrator.address, host_memory_gib=CAP_GIB, spill_dir=str(spill))
    async with running(where, sim, SimBackend("n1", sim, spill)) as agent:
        await start_job(folder)
        yield agent


@pytest.fixture
def large(agent: Agent, sim: SimConfig) -> SimBuffer:
    """What does not fit below the site's limit."""
    return device_of(sim).put(VALUES)


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_what_does_not_fit_in_host_memory_goes_to_disk_and_comes_back(
    large: SimBuffer, orchestrator: FakeOrchestrator, spill: Path, sim: SimConfig
) -> None:
    saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    on_disk, in_memory = files(spill), files(sim.directory / "host")
    back = await orchestrator.asks("RESTORE", "17", "1-2")

    assert (saved.ok, saved.context, saved.bytes) == (True, "saved", 2 * MIB)
    assert (on_disk, in_memory) == (["17/saved"], [])
    assert (back.ok, files(spill)) == (True, [])
    assert np.array_equal(large.get(), VALUES)


async def test_what_fits_stays_in_host_memory(
    agent: Agent, orchestrator: FakeOrchestrator, spill: Path, sim: SimConfig
) -> None:
    device_of(sim).put(VALUES[:MIB])

    assert (await orchestrator.asks("SNAPSHOT", "17", "1-1")).ok
    assert (files(spill), files(sim.directory / "host")) == ([], ["17/saved"])


async def test_what_is_on_disk_takes_no_host_memory_of_others(
    large: SimBuffer, orchestrator: FakeOrchestrator, folder: Path, sim: SimConfig, spill: Path
) -> None:
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    await start_job(folder, "18")
    device_of(sim, "18").put(VALUES[:MIB])

    assert (await orchestrator.asks("SNAPSHOT", "18", "1-2")).ok
    assert (files(spill), files(sim.directory / "host")) == (["17/saved"], ["18/saved"])


async def test_what_changed_on_disk_is_noticed(
    large: SimBuffer, orchestrator: FakeOrchestrator, spill: Path
) -> None:
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    with (spill / "17" / "saved").open("r+b") as file:
        file.seek(5000)
        file.write(bytes([VALUES[5000] ^ 1]))

    broken = await orchestrator.asks("RESTORE", "17", "1-2")

    assert (broken.ok, broken.context) == (False, "faulted")
    assert "checksum" in broken.error


async def test_a_jobs_end_frees_the_disk(
    large: SimBuffer, orchestrator: FakeOrchestrator, folder: Path, spill: Path
) -> None:
    await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert (await hook(folder, verb="job-end", job="17"))["ok"]
    assert names(spill) == []


async def test_named_copies_go_to_disk_too(large: SimBuffer, agent: Agent, folder: Path, spill: Path) -> None:
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as link:
        stub = v1_rpc.SnapshotAgentServiceStub(link)
        whole, part = (wanted((large.address, size), name="x") for size in (2 * MIB, MIB))
        saved = await save(stub, backend_config=whole)
        on_disk, counted = files(spill), dict(agent._state.jobs["17"].copies)
        large.set(np.zeros_like(VALUES))
        await load(stub, backend_config=whole)
        first = large.get()
        await save(stub, backend_config=part)
        await hook(folder, verb="job-end", job="17")

    assert saved.storage_bytes == 2 * MIB
    assert (len(on_disk), counted) == (2, {"x": 0})  # bytes of host memory
    assert np.array_equal(first, VALUES)
    assert files(spill) == []


async def test_a_smaller_copy_of_the_name_leaves_the_disk(
    large: SimBuffer, folder: Path, spill: Path
) -> None:
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as link:
        stub = v1_rpc.SnapshotAgentServiceStub(link)
        for size in (2 * MIB, MIB):
            await save(stub, backend_config=wanted((large.address, size), name="x"))
        large.set(np.zeros_like(VALUES))
        await load(stub, backend_config=wanted((large.address, MIB), name="x"))

    assert files(spill) == []
    assert np.array_equal(large.get()[:MIB], VALUES[:MIB])


async def test_an_agent_killed_while_it_writes_to_disk_frees_it_and_then_saves_again(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, spill: Path
) -> None:
    more = f'host_memory_gib = {CAP_GIB}\nspill_dir = "{folder}/spill"\n'
    process = AgentProcess(folder, orchestrator.address)

    async def start(gib_s: float = 0.0) -> None:
        await process.start(gib_s=gib_s, more=more)
        await orchestrator.hears("hello")

    await start(gib_s=0.001)
    try:
        await start_job(folder)
        await orchestrator.hears("started")
        buffer = device_of(sim).put(VALUES)
        orchestrator.operate("SNAPSHOT", "17", "1-1")
        await until(sim, Context.SAVING)
        await process.stop(signal.SIGKILL)
        await start()
        after_the_kill = files(spill)
        saved = await orchestrator.asks("SNAPSHOT", "17", "2-1")
        await process.stop(signal.SIGKILL)
        await start()
        on_disk = files(spill)
        back = await orchestrator.asks("RESTORE", "17", "3-1")
    finally:
        await process.stop(signal.SIGKILL)

    assert (after_the_kill, on_disk) == ([], ["sim/17/saved"])
    assert (saved.ok, back.ok, files(spill)) == (True, True, [])
    assert np.array_equal(buffer.get(), VALUES)


async def test_what_a_job_left_that_ended_while_no_agent_was_there_is_removed(
    sim: SimConfig, spill: Path
) -> None:
    (spill / "16").mkdir()
    (spill / "16" / "saved").write_bytes(b"x")

    await SimBackend("n1", sim, spill).recover([])

    assert names(spill) == []


def test_a_refusal_by_the_disk_has_its_numbers() -> None:
    disk = Disk("/nvme", 100 * GIB, 60 * GIB, promised=39 * GIB)

    assert disk_refusal(19 * GIB, disk) == ""
    assert disk_refusal(20 * GIB, disk) == (
        "nor on disk: of the 100.0 GiB of spill_dir = /nvme are 60.0 GiB free, 39.0 GiB promised to other "
        "snapshots, and 2.0 GiB are kept free"
    )


async def test_the_disk_counts_what_is_under_way_to_it(tmp_path: Path, sim: SimConfig) -> None:
    going = {"b": JobContext(Context.SAVING, 39 * GIB, spilled=True), "c": JobContext(Context.SAVING, GIB)}
    state = State(tmp_path)
    for name, context in {"a": JobContext(Context.RESIDENT), **going}.items():
        state.jobs[name] = Job(Request(name, "demo", "", (0,), 0, 0), "a", "token", context=context)
    disk = Disk("/nvme", 100 * GIB, 60 * GIB)
    room = HostRoom(state, GIB, lambda: Node(100 * GIB, 90 * GIB), disk=lambda: disk)
    spills, does_not = SimBackend("n1", sim, tmp_path), SimBackend("n1", sim)

    assert (await room.place(state.jobs["a"], spills, 19 * GIB)).spill is True
    full = await room.place(state.jobs["a"], spills, 20 * GIB)
    assert (
        "of host_memory_gib = 1 for saved state on this node 1.0 GiB are taken; nor on disk" in full.refusal
    )
    assert "39.0 GiB promised to other snapshots" in full.refusal
    assert "nor on disk" not in (await room.place(state.jobs["a"], does_not, 19 * GIB)).refusal


def test_the_disk_is_seen(tmp_path: Path) -> None:
    about = os.statvfs(tmp_path)

    assert host_memory.of_disk(tmp_path).total == about.f_blocks * about.f_frsize
    assert replace(host_memory.of_disk(tmp_path), total=0, free=0) == Disk(str(tmp_path), 0, 0)
