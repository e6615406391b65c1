"""What the agent tells the orchestrator: its devices, ends of jobs, and the whole truth after an outage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.node_agent.fakes import (
    FakeOrchestrator,
    config,
    device_of,
    environment,
    eventually,
    hook,
    running,
    start_job,
    until,
)

MIB = 1 << 20


async def test_hello_tells_the_devices_and_their_names(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)):
        hello = await orchestrator.hears("hello")

    assert hello.node == "n1"
    assert [(d.index, d.uuid, d.memory_bytes) for d in hello.devices] == [
        (0, "SIM-n1-0", 8 * MIB),
        (1, "SIM-n1-1", 8 * MIB),
    ]


async def test_an_end_leaves_nothing(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    started = await orchestrator.hears("started")
    device_of(sim).put(np.zeros(1000))

    reply = await hook(folder, verb="job-end", job="17")
    over = await orchestrator.hears("over")

    assert reply == {"ok": True}
    assert (over.job_id, over.attempt) == ("17", started.attempt)
    assert device_of(sim).used_bytes == 0
    assert list((folder / "run" / "jobs").iterdir()) == []
    assert json.loads((folder / "state" / "agent.json").read_text())["jobs"] == []


async def test_an_end_of_an_unknown_job_or_a_second_end_is_fine(agent: Agent, folder: Path) -> None:
    assert await hook(folder, verb="job-end", job="99") == {"ok": True}
    await start_job(folder)
    assert await hook(folder, verb="job-end", job="17") == {"ok": True}
    assert await hook(folder, verb="job-end", job="17") == {"ok": True}


async def test_after_an_outage_the_whole_truth_is_told_and_results_are_not_lost(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    device_of(sim).put(np.zeros(100))
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    await orchestrator.stop()
    await start_job(folder, "18")

    await orchestrator.start()
    hello = await orchestrator.hears("hello")
    again = await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert [(job.job_id, job.context, job.bytes) for job in hello.jobs] == [
        ("17", "saved", 4096),
        ("18", "none", 0),
    ]
    assert again.ok


async def test_a_result_that_could_not_be_sent_follows_the_next_hello(
    folder: Path, orchestrator: FakeOrchestrator
) -> None:
    sim = SimConfig(directory=folder / "sim", memory_mib=8, snapshot_gib_s=0.02)
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)) as agent:
        await orchestrator.hears("hello")
        await start_job(folder)
        device_of(sim).empty(4 * MIB, np.uint8)
        orchestrator.operate("SNAPSHOT", "17", "1-1")
        await until(sim, Context.SAVING)
        await orchestrator.stop()

        async def is_saved() -> bool:
            return agent._state.jobs["17"].context.state is Context.SAVED

        await eventually(is_saved)
        await orchestrator.start()
        hello = await orchestrator.hears("hello")
        done = await orchestrator.hears("done")

    assert hello.jobs[0].context == "saved"
    assert (done.operation_id, done.ok) == ("1-1", True)


async def test_the_noop_backend_says_done(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    where = config(folder, orchestrator.address, backend="noop")
    async with running(where, sim, NoopBackend("n1", 2)):
        await start_job(folder)
        saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
        back = await orchestrator.asks("RESTORE", "17", "1-2")

    assert [(d.ok, d.context) for d in (saved, back)] == [(True, "saved"), (True, "resident")]
    assert environment(folder)["CUDA_VISIBLE_DEVICES"] == "NOOP-n1-0"
