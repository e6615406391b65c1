"""No more threads can be started on the node: the agent serves, and moves when they can be again."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np

from slurm_interleave.client.sim.settings import SimConfig
from tests.node_agent.agent_process import AgentProcess
from tests.node_agent.fakes import FakeOrchestrator, device_of, hook, start_job
from tests.pid_limit import pid_limit


async def test_jobs_start_and_end_and_a_move_fails_whole_and_is_done_later(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    process = AgentProcess(folder, orchestrator.address)
    await process.start(more="watch_s = 0.1\n")
    await orchestrator.hears("hello")
    await start_job(folder, "17")
    attempt = (await orchestrator.hears("started")).attempt
    buffer = device_of(sim).put(np.arange(1000))
    try:
        with pid_limit(process.pid) as limit:
            limit.full()
            assert (await start_job(folder, "18", devices=[1]))["ok"]
            await orchestrator.hears("started")
            failed = await orchestrator.asks("SNAPSHOT", "17", "1-1", attempt)
            assert (failed.ok, failed.context) == (False, "resident")
            assert "can't start new thread" in failed.error
            assert (await hook(folder, verb="job-end", job="18"))["ok"]
            assert (await orchestrator.hears("over")).job_id == "18"

            limit.off()
            assert (await orchestrator.asks("SNAPSHOT", "17", "1-2", attempt)).ok
            assert (await orchestrator.asks("RESTORE", "17", "1-3", attempt)).ok
        assert np.array_equal(buffer.get(), np.arange(1000))
    finally:
        assert await process.stop(signal.SIGTERM) == 0
