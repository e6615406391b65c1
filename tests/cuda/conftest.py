from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from slurm_interleave.client.core.groups import DeclaredGroup
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.cuda import gang
from slurm_interleave.node_agent.backends.cuda.backend import CudaBackend
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.backends.protocol import Target
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.contexts import Outcome
from slurm_interleave.node_agent.daemon import backend_of
from slurm_interleave.node_agent.job_processes import Owner
from slurm_interleave.node_agent.state import State
from tests.node_agent.conftest import folder, orchestrator
from tests.node_agent.fakes import FakeOrchestrator, config
from tests.stub_driver.stub import RUNNING, Process, Stub, build

__all__ = ["folder", "orchestrator"]


CONFIG = CudaConfig(lock_timeout_s=5, release_timeout_s=1, headroom_mib=1, look_s=0.05)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None and os.environ.get("CI") != "true":
        pytest.skip("no C compiler for the stub of the driver")
    return build(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def stub(tmp_path: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """Four devices of 64 MiB; all that is started from here on finds them."""
    stub = Stub(tmp_path / "stub", libraries)
    for name, value in stub.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(gang, "_ASK_S", 2.0)
    monkeypatch.setattr(gang, "_LOCK_MORE_S", 1.0)
    # The jobs here are in no cgroup of Slurm, and no Slurm knows them.
    scontrol = stub.folder / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text("#!/bin/sh\nexit 1\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scontrol.parent}:{os.environ['PATH']}")
    yield stub
    stub.close()


class Node:
    """A backend that serves jobs of root."""

    def __init__(self, folder: Path, config: CudaConfig = CONFIG) -> None:
        self.owners = {"17": Owner(0), "18": Owner(0)}
        self.deadline_s = 30.0
        self.config = config
        self.folder = folder
        self.backend = CudaBackend(config, folder, lambda: self.owners)

    def target(self, job: str, *devices: int) -> Target:
        return Target(job, devices or (0, 1, 2, 3), self.deadline_s)

    async def save(self, job: str = "17", *devices: int) -> Outcome:
        return await self.backend.snapshot(self.target(job, *devices))

    async def bring(self, job: str = "17", *devices: int) -> Outcome:
        return await self.backend.restore(self.target(job, *devices))

    async def saved(self, job: str = "17", *devices: int) -> Outcome:
        outcome = await self.save(job, *devices)
        assert outcome.context is Context.SAVED, outcome
        return outcome


@contextlib.asynccontextmanager
async def node_with_tool(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """Start a node whose cuda-checkpoint is *program*."""
    path = folder / "bin" / "cuda-checkpoint"
    path.parent.mkdir()
    path.write_text(program)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    node = await asyncio.to_thread(Node, folder)
    yield node
    await node.backend.close()


@pytest_asyncio.fixture
async def node(stub: Stub, tmp_path: Path) -> AsyncIterator[Node]:
    node = await asyncio.to_thread(Node, tmp_path)
    yield node
    await node.backend.close()


@contextlib.asynccontextmanager
async def running(
    where: AgentConfig, cuda: CudaConfig = CONFIG, groups: Mapping[str, DeclaredGroup] | None = None
) -> AsyncIterator[Agent]:
    state = State(where.state_dir)
    backend = await asyncio.to_thread(backend_of, where, SimConfig(), cuda, state)
    assert isinstance(backend, CudaBackend)
    agent = Agent(where, SimConfig(), backend, state, groups)
    task = asyncio.create_task(agent.run())
    await asyncio.wait({task, asyncio.create_task(agent.ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    assert not task.done(), task
    try:
        yield agent
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def where(folder: Path, orchestrator: FakeOrchestrator) -> AgentConfig:
    return config(folder, orchestrator.address, backend="cuda", operation_timeout_s=20.0)


def four_ranks(stub: Stub) -> list[Process]:
    return [stub.start("17", f"{device}:2") for device in range(4)]


async def runs_on(stub: Stub, ranks: list[Process], before: list[str]) -> bool:
    """Say whether the job is as it was, and its calls come back."""
    states = {stub.state(rank.pid) for rank in ranks}
    return states == {RUNNING} and [rank.ask("hash") for rank in ranks] == before
