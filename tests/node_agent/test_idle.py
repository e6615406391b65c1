"""What an agent does while its jobs do nothing: counted, since what it takes depends on the machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.protocol import User
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.contexts import Seen
from tests.node_agent.fakes import FakeOrchestrator, config, running, start_job

JOBS = [f"idle-{os.getpid()}-{number}" for number in range(16)]
MINUTE = round(60 / AgentConfig().watch_s)  # its looks, of each kind
OTHERS = 100  # processes that may come and go on this machine meanwhile


class Counting(SimBackend):
    """Counts what it is asked."""

    def __init__(self, node: str, sim: SimConfig) -> None:
        super().__init__(node, sim)
        self.asked: Counter[str] = Counter()

    def users(self) -> list[User]:
        self.asked["users"] += 1
        return super().users()

    def look(self, job: str) -> Seen | None:
        self.asked["look"] += 1
        return super().look(job)


class Opened:
    """Counts the files below a folder that this process opens, while it is switched on."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.files, self.on = f"{folder}/", 0, True
        sys.addaudithook(self._hear)  # for ever, so it can be switched off

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event == "open" and str(arguments[0]).startswith(self._folder):
            self.files += 1


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Opened]:
    counts = Opened(folder)
    yield counts
    counts.on = False


@pytest.fixture
def backend(sim: SimConfig) -> Counting:
    return Counting("n1", sim)


@pytest.fixture
def processes() -> Iterator[None]:
    """One process a job, which sleeps."""
    with contextlib.ExitStack() as stack:
        for job in JOBS:
            environ = {**os.environ, "INTERLEAVE_JOB_ID": job}
            process = stack.enter_context(subprocess.Popen(["sleep", "300"], env=environ))
            stack.callback(process.kill)
        yield


@pytest_asyncio.fixture
async def agent(
    processes: None, folder: Path, sim: SimConfig, backend: Counting, orchestrator: FakeOrchestrator
) -> AsyncIterator[Agent]:
    """An agent with those jobs, which looks when the test says so."""
    async with running(config(folder, orchestrator.address, watch_s=3600.0), sim, backend) as agent:
        await orchestrator.hears("hello")
        for job in JOBS:
            await start_job(folder, job)
            await orchestrator.hears("started")
        await look(agent)  # the first finds what is new
        yield agent


async def look(agent: Agent) -> None:
    await agent._watch.look()
    await agent._users.look()


def processes_here() -> int:
    return sum(path.name.isdigit() for path in Path("/proc").iterdir())


def written(folder: Path) -> set[tuple[str, int, int, int]]:
    """Return what tells whether a file in *folder* was written or replaced."""
    stats = ((path.name, path.stat()) for path in folder.iterdir())
    return {(name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats}


async def test_a_minute_of_idle_jobs_asks_little_reads_little_and_saves_and_tells_nothing(
    agent: Agent, folder: Path, backend: Counting, orchestrator: FakeOrchestrator
) -> None:
    backend.asked.clear()
    alive, before = processes_here(), written(folder / "state")
    with opened(Path("/proc")) as proc:
        for _ in range(MINUTE):
            await look(agent)

    assert MINUTE <= 12
    assert backend.asked == {"users": MINUTE}
    assert MINUTE * len(JOBS) <= proc.files <= MINUTE * (alive + OTHERS)
    assert written(folder / "state") == before
    assert orchestrator._said.empty()
