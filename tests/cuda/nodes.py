"""The part of an agent that holds the state of a job while its processes are saved, and brings it back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.cuda.backend import CudaBackend
from slurm_interleave.node_agent.backends.protocol import Mover, Target
from slurm_interleave.node_agent.contexts import JobContext, Outcome
from slurm_interleave.node_agent.in_process import InProcess
from slurm_interleave.node_agent.job_processes import Owner
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, Request, State
from slurm_interleave.node_agent.waits import Stop
from tests.cuda.conftest import CONFIG
from tests.stub_driver.stub import MIB, Stub


class Suspends(Mover):
    """Stands for an application that takes itself off, and leaves its context."""

    name = "app_channel"
    in_app = True
    in_process = True

    async def snapshot(self, _target: Target) -> Outcome:
        return Outcome(Context.SAVED, 30 * MIB, kept=4 * MIB)

    async def restore(self, _target: Target) -> Outcome:
        return Outcome(Context.RESIDENT, 30 * MIB)

    async def discard(self, _target: Target) -> Outcome:
        return Outcome(Context.NONE)


class Nodes:
    """Two agents' parts that hold and bring back the state of job 17, by the same driver."""

    def __init__(self, folder: Path, mover: Mover | None = None) -> None:
        self.job = Job(Request("17", "demo", "", (0,), 0, 0), "a", "token")
        self.state = State(folder)
        self.state.jobs["17"] = self.job
        self.backend = CudaBackend(CONFIG, folder, lambda: {"17": Owner(0)})
        named = {"": mover, "app_channel": mover}
        self.operations = Operations(self.state, self.backend, 20.0, lambda _, by: named.get(by))
        self.in_process = InProcess(self.state, self.operations)

    async def dumped(self) -> tuple[JobContext, dict[str, Any]]:
        async with self.in_process.holding(self.job, Stop()):
            return self.job.context, self.backend.carried("17")


@pytest_asyncio.fixture
async def here(stub: Stub, tmp_path: Path) -> AsyncIterator[Nodes]:
    nodes = await asyncio.to_thread(Nodes, tmp_path / "here")
    yield nodes
    await nodes.backend.close()


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
