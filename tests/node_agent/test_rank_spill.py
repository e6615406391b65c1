"""Ranks that move their own state save it on the site's disk where host memory does not hold it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest_asyncio

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.workload import Rank, Workload
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent.fakes import FakeOrchestrator, environment, eventually
from tests.node_agent.test_spill import MIB, VALUES, agent, names, spill

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


@pytest_asyncio.fixture
async def ranks(agent: Agent, folder: Path, sim: SimConfig) -> AsyncIterator[list[Rank1MiB]]:
    device = SimDevice(Arena.open(sim.directory), 0, "17")
    states = [Rank1MiB(device), Rank1MiB(device)]
    made = [Workload.from_env(state, Rank(n, 2), environment(folder)) for n, state in enumerate(states)]

    async def are_there() -> bool:
        return not agent._channels.missing("17")

    await eventually(are_there)
    yield states
    for workload in filter(None, made):
        await asyncio.to_thread(workload.close)


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
