"""Drains that are cancelled, with a program that dumps as criu does, and does not end when it is told to."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import WrongState
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent import criu as program
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.images import Image
from slurm_interleave.node_agent.state import Job
from tests.node_agent.fakes import FakeOrchestrator, config, eventually, running, start_job
from tests.node_agent.saving import JOB, ORDER, WELL, Slurm, command, criu, drains, stands_still, until

__all__ = ["command"]


async def test_a_dump_that_does_not_end_is_killed_and_its_job_goes_on(
    tmp_path: Path, command: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_FAILS_S", 0.1)
    slurm = Slurm()
    saving, job = drains(tmp_path, criu(tmp_path, f"{WELL}; touch {tmp_path}/begun; sleep 1000"), slurm)
    job.context = JobContext(Context.RESIDENT)
    draining = asyncio.create_task(saving.save(ORDER))
    await asyncio.to_thread(until, (tmp_path / "begun").exists)
    await asyncio.to_thread(until, lambda: stands_still(command))  # a little after it was sent the signal

    saving.cancel(JOB)
    update = await draining

    assert (update.ok, update.error) == (False, "cancelled")
    assert (stands_still(command), command.poll()) == (False, None)
    assert (list((tmp_path / "images").iterdir()), slurm.requeued, job.saving) == ([], [], False)


async def test_a_dump_can_write_no_more_once_it_is_cancelled_and_ends_by_itself(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    writes = (
        f'touch {tmp_path}/begun; while echo pages >>"$6/pages-1.img"; do :; done; touch {tmp_path}/failed'
    )
    saving, _ = drains(tmp_path, criu(tmp_path, writes))
    draining = asyncio.create_task(saving.save(ORDER))
    await asyncio.to_thread(until, (tmp_path / "begun").exists)

    saving.cancel(JOB)
    update = await draining

    assert (update.ok, update.error) == (False, "cancelled")
    assert (tmp_path / "failed").exists(), "it was killed"


async def test_a_drain_that_is_cancelled_before_its_dump_ends_before_it(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    go_on, slurm = tmp_path / "go-on", Slurm()
    os.mkfifo(go_on)
    saving, _ = drains(tmp_path, criu(tmp_path, check=f"touch {tmp_path}/begun; read x <{go_on}"), slurm)
    draining = asyncio.create_task(saving.save(ORDER))
    await asyncio.to_thread(until, (tmp_path / "begun").exists)

    saving.cancel(JOB)
    await asyncio.to_thread(go_on.write_text, "\n")
    update = await draining

    assert (update.ok, update.error) == (False, "cancelled")
    assert (stands_still(command), slurm.requeued, list((tmp_path / "images").iterdir())) == (False, [], [])
    criu(tmp_path)  # does not wait any more
    assert (await saving.save(ORDER)).ok, "what was cancelled is over"


async def test_once_slurm_was_asked_to_requeue_a_job_a_cancel_comes_too_late(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    class Late(Slurm):
        async def requeue(self, job_id: str, restarts: int | None) -> None:
            saving.cancel(job_id)
            await super().requeue(job_id, restarts)

    slurm = Late()
    saving, _ = drains(tmp_path, criu(tmp_path), slurm)

    assert (await saving.save(ORDER)).ok
    assert slurm.requeued == [JOB]


async def test_a_hello_says_which_jobs_are_being_saved(agent: Agent, folder: Path) -> None:
    for job in ("17", "18"):
        await start_job(folder, job)
    agent._state.jobs["18"].saving = True

    assert {job.job_id: job.being_saved for job in agent._hello().jobs} == {"17": False, "18": True}


async def test_an_agent_that_starts_again_ends_a_drain_that_was_under_way(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    where = config(folder, orchestrator.address)
    async with running(where, sim, SimBackend("n1", sim)) as agent:
        await start_job(folder)
        agent._state.jobs["17"].saving = True
        agent._state.save()

    async with running(where, sim, SimBackend("n1", sim)) as agent:

        async def is_over() -> bool:
            return not agent._state.jobs["17"].saving

        await eventually(is_over)


async def test_a_cancel_that_follows_a_drain_at_once_is_not_lost(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def save(job: Job) -> Image:
        await asyncio.sleep(0)
        raise WrongState("cancelled" if agent._drains._stops[job.job_id].is_set() else "the cancel was lost")

    await start_job(folder)
    monkeypatch.setattr(agent._drains, "_save", save)

    agent._take(pb.AgentOrder(drain=pb.Drain(job_id="17", attempt=agent._state.jobs["17"].attempt)))
    agent._take(pb.AgentOrder(cancel=pb.Cancel(job_id="17")))

    assert (await orchestrator.hears("drained")).error == "cancelled"
