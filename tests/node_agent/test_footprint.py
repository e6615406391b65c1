"""What the agent takes of its node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from signal import SIGKILL

import pytest_asyncio

from tests.node_agent.agent_process import AgentProcess
from tests.node_agent.fakes import FakeOrchestrator, start_job

RSS_MIB = 60
HEAVY = {"click", "rich", "numpy", "sqlalchemy", "alembic", "vl_convert", "torch", "cuda", "pynvml"}


@pytest_asyncio.fixture
async def process(folder: Path, orchestrator: FakeOrchestrator) -> AsyncIterator[AgentProcess]:
    async with AsyncExitStack() as stack:
        agent = AgentProcess(folder, orchestrator.address)
        await agent.start()
        stack.push_async_callback(agent.stop, SIGKILL)
        yield agent


def test_it_imports_nothing_that_is_heavy() -> None:
    code = (
        "import sys, slurm_interleave.node_agent.daemon; print(*{n.partition('.')[0] for n in sys.modules})"
    )

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert HEAVY & set(loaded.stdout.split()) == set()


async def test_with_16_jobs_it_takes_less_than_60_mib(process: AgentProcess, folder: Path) -> None:
    for number in range(16):
        await start_job(folder, str(number + 1))

    assert rss_mib(process.pid) < RSS_MIB


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
