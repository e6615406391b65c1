"""Who uses the devices: found by process, told to the orchestrator, killed where it says so."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.protocol import User
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.users import owner
from tests.node_agent.fakes import FakeOrchestrator, config, environment, running, start_job

WORK = """
import numpy as np
from slurm_interleave.client.sim import SimDevice
device = SimDevice.open()
buffer = device.put(np.zeros(10))
print(device.job, flush=True)
device.run("hidden", lambda values: None, buffer, seconds=60)
"""
HIDDEN = 'unset INTERLEAVE_JOB_ID INTERLEAVE_GROUP INTERLEAVE_TOKEN; python -c "$0"; true'


@pytest_asyncio.fixture
async def agent(folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator) -> AsyncIterator[Agent]:
    """A running agent that looks often."""
    settings = config(folder, orchestrator.address, watch_s=0.05)
    async with running(settings, sim, SimBackend("n1", sim)) as agent:
        await orchestrator.hears("hello")
        await start_job(folder, uid=os.getuid())
        yield agent


@contextlib.contextmanager
def script(folder: Path, sim: SimConfig, *command: str, **variables: str) -> Iterator[Any]:
    """A job script of job 17 that works on its device without a lease; gives it once it works."""
    mine = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "INTERLEAVE_SIM_DIR": str(sim.directory),
    }
    process = subprocess.Popen(
        command, env={**mine, **variables}, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()


async def uses(orchestrator: FakeOrchestrator) -> list[pb.Use]:
    """Return the next look at which somebody works."""
    while True:
        look = await orchestrator.hears("uses")
        if at_work := [use for use in look.uses if use.working]:
            return at_work


async def test_a_script_that_unsets_our_variables_is_known_by_those_who_started_it(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    with script(folder, sim, "bash", "-c", HIDDEN, WORK, **environment(folder)):
        [use] = await uses(orchestrator)

    assert (use.job_id, use.device) == ("17", 0)


async def test_a_process_of_no_job_is_a_stranger(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    with script(folder, sim, "python", "-c", WORK) as stranger:
        [use] = await uses(orchestrator)

    assert (use.job_id, use.pid) == ("", stranger.pid)


async def test_when_nobody_is_there_any_more_that_is_said_once(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    with script(folder, sim, "python", "-c", WORK):
        await uses(orchestrator)

    while (await orchestrator.hears("uses")).uses:
        pass
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(orchestrator.hears("uses"), 0.3)


async def test_a_trespasser_is_killed_by_order_alone(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    attempt = (await orchestrator.hears("started")).attempt
    with script(folder, sim, "bash", "-c", HIDDEN, WORK, **environment(folder)) as job:
        [use] = await uses(orchestrator)

        orchestrator.orders(stop=pb.Stop(job_id="17", attempt=attempt, pid=use.pid))

        await asyncio.to_thread(job.wait, 15)
    with pytest.raises(ProcessLookupError):
        os.kill(use.pid, 0)


@pytest.mark.parametrize("wrong", ["attempt", "stranger", "not there"])
async def test_nobody_else_is_killed(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, wrong: str
) -> None:
    attempt = (await orchestrator.hears("started")).attempt
    variables = environment(folder) if wrong == "attempt" else {}
    with script(folder, sim, "python", "-c", WORK, **variables) as process:
        await uses(orchestrator)
        pid = 1 << 22 if wrong == "not there" else process.pid

        order = pb.Stop(job_id="17", attempt="other" if wrong == "attempt" else attempt, pid=pid)
        orchestrator.orders(stop=order)
        await orchestrator.asks("SNAPSHOT", "none", "1-1")
        await uses(orchestrator)

        assert process.poll() is None


def test_a_process_of_another_user_is_not_the_jobs_whatever_it_says() -> None:
    me = User(0, os.getpid(), working=True, claims="17")

    assert owner(me, {"17": os.getuid()}, {}) == "17"
    assert owner(me, {"17": os.getuid() + 1}, {}) == ""


def test_a_process_is_of_the_job_that_one_of_its_line_was_registered_as() -> None:
    me = User(0, os.getpid(), working=True)

    for pid in (os.getpid(), os.getppid()):
        assert owner(me, {"a+1": os.getuid()}, {pid: "a+1"}) == "a+1"
        assert owner(me, {"a+1": os.getuid() + 1}, {pid: "a+1"}) == ""


def test_a_process_that_has_ended_belongs_to_nobody() -> None:
    assert owner(User(0, 1 << 22, working=True, claims="17"), {"17": 0}, {}) == ""
