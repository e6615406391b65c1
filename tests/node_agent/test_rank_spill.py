"""Ranks that move their own state save it on the site's disk where host memory does not hold it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.workload import Rank, Workload
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.daemon import backend_of
from slurm_interleave.node_agent.spill import RankSpill
from slurm_interleave.node_agent.state import State
from tests.node_agent.fakes import (
    FakeOrchestrator,
    config,
    device_of,
    environment,
    eventually,
    running,
    start_job,
)
from tests.node_agent.test_spill import CAP_GIB, MIB, VALUES, agent, files, names, spill

__all__ = ["agent", "spill"]


class Rank1MiB:
    """One of two ranks that save on disk where they are told to; it keeps what it was told."""

    tags = ("weights",)
    can_discard, spills, arena_bytes = False, True, 0

    def __init__(self, device: SimDevice) -> None:
        self._device, self._buffer = device, device.put(VALUES[:MIB])
        self.folders: list[tuple[str, int]] = []
        self.refuses = ""

    def suspend(self, tags: Sequence[str], *, discard: bool) -> None:
        assert not discard
        where = [Path(tag.removeprefix("spill:")) for tag in tags if tag.startswith("spill:")]
        self.folders += [(folder.name, folder.stat().st_mode & 0o777) for folder in where]
        self._buffer.free()

    def resume(self, tags: Sequence[str]) -> None:
        assert list(tags) == []
        if self.refuses:
            raise RuntimeError(self.refuses)
        self._buffer = self._device.put(VALUES[:MIB])


@asynccontextmanager
async def serving_ranks(agent: Agent, folder: Path, sim: SimConfig) -> AsyncIterator[list[Rank1MiB]]:
    device = device_of(sim)
    states = [Rank1MiB(device), Rank1MiB(device)]
    made = [Workload.from_env(state, Rank(n, 2), environment(folder)) for n, state in enumerate(states)]

    async def are_there() -> bool:
        return not agent._channels.missing("17")

    await eventually(are_there)
    yield states
    for workload in filter(None, made):
        await asyncio.to_thread(workload.close)


@pytest_asyncio.fixture
async def ranks(agent: Agent, folder: Path, sim: SimConfig) -> AsyncIterator[list[Rank1MiB]]:
    async with serving_ranks(agent, folder, sim) as states:
        yield states


async def test_ranks_are_given_a_folder_of_theirs_for_as_long_as_they_save(
    ranks: list[Rank1MiB], orchestrator: FakeOrchestrator, spill: Path, agent: Agent
) -> None:
    saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert (saved.ok, saved.context, saved.bytes) == (True, "saved", 2 * MIB)
    assert [state.folders for state in ranks] == [[(".ranks-17", 0o700)]] * 2
    assert (names(spill), agent._state.jobs["17"].context.spilled) == ([], True)


async def test_ranks_that_go_back_since_another_cannot_come_go_back_to_disk(
    ranks: list[Rank1MiB], orchestrator: FakeOrchestrator, agent: Agent
) -> None:
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    ranks[1].refuses = "no room"
    failed = await orchestrator.asks("RESTORE", "17", "1-2")
    ranks[1].refuses = ""
    spilled = agent._state.jobs["17"].context.spilled
    back = await orchestrator.asks("RESTORE", "17", "1-3")

    assert (failed.ok, failed.context, spilled) == (False, "saved", True)
    assert [len(state.folders) for state in ranks] == [2, 1]
    assert (back.ok, agent._state.jobs["17"].context.spilled) == (True, False)


async def test_a_disk_that_cannot_be_used_leaves_the_ranks_on_their_devices(
    ranks: list[Rank1MiB], orchestrator: FakeOrchestrator, spill: Path
) -> None:
    (spill / ".ranks-17").write_text("in the way")

    failed = await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert (failed.ok, failed.context) == (False, "resident")
    assert "spill_dir cannot be used" in failed.error


DEEP = 1100  # more than Python calls functions in each other, and than a path may have


def as_deep(folder: Path, levels: int = DEEP) -> None:
    """Make folders in each other, with files, without ever naming them all."""
    here, name = os.open(folder, os.O_RDONLY), "a" * 10
    for _ in range(levels):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.mkdir(name, dir_fd=here)
        here, above = os.open(name, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)


async def test_whatever_a_user_leaves_in_his_folder_is_removed_with_it(spill: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("not his")
    async with RankSpill(spill).folder("17", os.getuid(), os.getgid()) as folder:
        as_deep(folder)
        (folder / "link").symlink_to(tmp_path)
        (folder / "many").mkdir()
        for number in range(10):
            (folder / "many" / f"{number}").mkdir(mode=0)

    assert names(spill) == []
    assert kept.read_text() == "not his"


async def test_what_a_user_left_in_his_folder_keeps_no_later_agent_from_starting(
    spill: Path, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    left = spill / ".ranks-17"
    left.mkdir()
    as_deep(left)
    where = config(folder, orchestrator.address, spill_dir=str(spill))
    async with running(where, sim, SimBackend("n1", sim)):
        assert names(spill) == []


async def test_a_disk_that_others_use_too_keeps_what_is_theirs(
    spill: Path, sim: SimConfig, folder: Path
) -> None:
    (spill / "theirs").mkdir()
    (spill / "theirs" / "results").write_text("of years")
    where = config(folder, "127.0.0.1:1", spill_dir=str(spill))
    backend = backend_of(where, sim, CudaConfig(), State(where.state_dir))

    async with running(where, sim, backend):
        assert files(spill) == ["theirs/results"]


MOVERS = "app_channel+sim"


class Partly:
    """An agent on which ranks spill, and what they leave is for `sim`, on disk as well or in host memory."""

    def __init__(self, folder: Path, sim: SimConfig, agent: Agent, states: list[Rank1MiB]) -> None:
        self.states, self.agent = states, agent
        self.rest = device_of(sim)
        self.on_disk, self.in_memory = folder / "spill", sim.directory / "host"

    def context(self) -> JobContext:
        return self.agent._state.jobs["17"].context


@pytest_asyncio.fixture(params=["on disk too", "in host memory"])
async def partly(
    request: pytest.FixtureRequest, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, spill: Path
) -> AsyncIterator[Partly]:
    where = config(folder, orchestrator.address, host_memory_gib=CAP_GIB, spill_dir=str(spill))
    backend = SimBackend("n1", sim, spill if request.param == "on disk too" else None)
    async with running(where, sim, backend) as agent:
        await start_job(folder, backend=MOVERS)
        async with serving_ranks(agent, folder, sim) as states:
            yield Partly(folder, sim, agent, states)


async def test_what_ranks_leave_that_spill_is_saved_by_who_comes_next(
    partly: Partly, orchestrator: FakeOrchestrator
) -> None:
    buffer = partly.rest.put(VALUES[:4096])

    saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    context, rests = partly.context(), [files(partly.on_disk), files(partly.in_memory)]
    back = await orchestrator.asks("RESTORE", "17", "1-2")

    assert (saved.ok, saved.context, saved.bytes) == (True, "saved", 2 * MIB + 4096), saved.error
    assert [len(state.folders) for state in partly.states] == [1, 1]
    spills = partly.agent._backend.can_spill
    assert rests == ([["17/saved"], []] if spills else [[], ["17/saved"]])
    assert (context.spilled, context.in_memory) == (True, 0 if spills else 4096)
    assert (back.ok, partly.context().spilled) == (True, False)
    assert np.array_equal(buffer.get(), VALUES[:4096])


async def test_a_rest_that_does_not_fit_in_host_memory_has_the_ranks_come_back(
    partly: Partly, orchestrator: FakeOrchestrator
) -> None:
    partly.rest.put(VALUES[: MIB + 4096])

    done = await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert [len(state.folders) for state in partly.states] == [1, 1]
    if partly.agent._backend.can_spill:
        assert done.ok
    else:
        assert (done.ok, done.context) == (False, "resident")
        assert "1.0 MiB do not fit in host memory: of host_memory_gib" in done.error
        assert partly.rest.used_bytes == 3 * MIB + 4096


async def test_what_is_in_host_memory_beside_the_disk_is_not_free_for_others(
    partly: Partly, orchestrator: FakeOrchestrator, folder: Path, sim: SimConfig
) -> None:
    partly.rest.put(VALUES[:4096])
    assert (await orchestrator.asks("SNAPSHOT", "17", "1-1")).ok
    await start_job(folder, "18", devices=[1])
    device_of(sim, "18", 1).put(VALUES[:MIB])

    other = await orchestrator.asks("SNAPSHOT", "18", "1-2")

    assert other.ok == partly.agent._backend.can_spill, other.error  # just what the site allows in all
    assert files(partly.in_memory) == (["18/saved"] if other.ok else ["17/saved"])
