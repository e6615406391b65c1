"""A state_dir that takes nothing: what would be on it is in run_dir, and comes back when it can."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.contexts import JobContext, Verb
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, Request, State
from slurm_interleave.node_agent.watch import Watch
from tests.node_agent.agent_process import AgentProcess
from tests.node_agent.fakes import FakeOrchestrator, device_of, hook, start_job
from tests.small_disk import SmallDisk, small_disk


def full(folder: Path, spare: Path | None = None) -> State:
    """Return the state of one job; nothing of it can be written, since both files are folders now."""
    state = State(folder, spare)
    state.jobs["17"] = Job(
        Request("17", "demo", "", (0,), 0, 0), "a", "token", context=JobContext(Context.RESIDENT)
    )
    state.save()
    for path in blocked(folder):
        path.mkdir()
    return state


def free(folder: Path) -> None:
    for path in blocked(folder):
        path.rmdir()


def blocked(folder: Path) -> list[Path]:
    return [folder / "agent.journal", folder / "agent.new"]


async def test_a_full_disk_fails_no_operation_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = full(tmp_path)
    moves = Operations(state, NoopBackend("n1", 1), 5, lambda *_: None)

    with caplog.at_level(logging.ERROR):
        saved = await moves.order("1-1", Verb.SNAPSHOT, "17", "a")
        back = await moves.order("1-2", Verb.RESTORE, "17", "a")
        state.save()

    assert (saved.outcome.context, back.outcome.context) == (Context.SAVED, Context.RESIDENT)
    assert saved.outcome.ok
    assert back.outcome.ok
    assert [record.message for record in caplog.records] == ["state.unwritten"]


async def _with_the_next_save(state: State) -> None:
    state.save_context(state.jobs["17"])


async def _with_a_look_at_the_jobs(state: State) -> None:
    async def nobody_ends(_job: str) -> None:
        return

    await Watch(state, nobody_ends, 5).look()


@pytest.mark.parametrize("when", [_with_the_next_save, _with_a_look_at_the_jobs])
async def test_what_could_not_be_written_is_written_when_there_is_room(
    tmp_path: Path, when: Callable[[State], Awaitable[None]]
) -> None:
    state = full(tmp_path)
    state.jobs["17"].context = JobContext(Context.SAVED, 5)
    state.save_context(state.jobs["17"])

    free(tmp_path)
    await when(state)

    assert State(tmp_path).jobs["17"].context == JobContext(Context.SAVED, 5)


def test_what_the_disk_does_not_take_is_kept_elsewhere_and_only_while_it_is_the_newest(
    tmp_path: Path,
) -> None:
    folder, spare = tmp_path / "state", tmp_path / "run" / "agent.json"
    state = full(folder, spare)
    state.jobs["17"].context = JobContext(Context.SAVED, 5)
    state.save_context(state.jobs["17"])
    free(folder)
    assert State(folder, spare).jobs["17"].context == JobContext(Context.SAVED, 5)
    assert spare.stat().st_mode & 0o077 == 0
    kept = spare.read_bytes()

    state.jobs["17"].context = JobContext(Context.RESIDENT)
    state.save_context(state.jobs["17"])

    assert not spare.exists()
    spare.write_bytes(kept)  # as an agent leaves it that is killed just before it removes it
    assert State(folder, spare).jobs["17"].context == JobContext(Context.RESIDENT)


@pytest.fixture
def disk(folder: Path) -> Iterator[SmallDisk]:
    with small_disk(folder / "state", 256) as disk:
        yield disk


@pytest_asyncio.fixture
async def process(
    folder: Path, orchestrator: FakeOrchestrator, disk: SmallDisk
) -> AsyncIterator[AgentProcess]:
    async with AsyncExitStack() as stack:
        agent = AgentProcess(folder, orchestrator.address, disk.enter)
        await agent.start()
        stack.push_async_callback(agent.stop, signal.SIGKILL)
        await orchestrator.hears("hello")
        yield agent


async def restarted(process: AgentProcess, orchestrator: FakeOrchestrator) -> dict[str, str]:
    """Kill the agent; return which jobs the next one knows, each with its context."""
    await process.stop(signal.SIGKILL)
    await process.start()
    hello = await orchestrator.hears("hello")
    return {job.job_id: job.context for job in hello.jobs}


def _remount_read_only(disk: SmallDisk) -> None:
    disk.remount("ro")


@pytest.mark.parametrize("hurt", [SmallDisk.fill, _remount_read_only])
async def test_jobs_start_move_and_end_on_a_disk_that_takes_nothing_and_the_next_agent_knows_of_all(
    process: AgentProcess,
    folder: Path,
    sim: SimConfig,
    orchestrator: FakeOrchestrator,
    disk: SmallDisk,
    hurt: Callable[[SmallDisk], None],
) -> None:
    await start_job(folder, "16")
    await orchestrator.hears("started")
    await process.stop(signal.SIGKILL)
    hurt(disk)

    await process.start()
    await orchestrator.hears("hello")
    assert (await start_job(folder, "17"))["ok"]
    attempt = (await orchestrator.hears("started")).attempt
    buffer = device_of(sim).put(np.arange(1000))
    assert (await orchestrator.asks("SNAPSHOT", "17", "1-1", attempt)).ok
    assert (await hook(folder, verb="job-end", job="16"))["ok"]

    assert await restarted(process, orchestrator) == {"17": "saved"}
    disk.remount("rw")
    disk.empty()
    assert (await orchestrator.asks("RESTORE", "17", "1-2", attempt)).ok
    assert np.array_equal(buffer.get(), np.arange(1000))
    assert not (folder / "run" / "agent.json").exists()
    assert await restarted(process, orchestrator) == {"17": "resident"}
