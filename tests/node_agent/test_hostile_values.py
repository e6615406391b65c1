"""Nothing that a job or a hook says ends the agent."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from slurm_interleave.client.connect import open_aio_channel
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.state import State
from tests.hostile import Hostile, answer, attack, tracebacks
from tests.node_agent.fakes import FakeOrchestrator, hook, start_job

KEYS = ("job", "uid", "gid", "user", "account", "partition", "group", "role", "devices")


@pytest.mark.parametrize(
    "more",
    [
        {"uid": 1 << 70},
        {"uid": -1},
        {"gid": (1 << 32) - 1},
        {"uid": float("inf")},
        {"devices": 7},
        {"devices": {"0": 0}},
        {"devices": [float("inf")]},
        {"devices": [1 << 70]},
        {"job": "9" * 128},
    ],
    ids=str,
)
async def test_a_start_with_numbers_that_cannot_be_is_refused(
    agent: Agent, folder: Path, more: dict[str, object]
) -> None:
    request = {"job": "17", "uid": 0, "gid": 0, "user": "a", "group": "demo", "devices": [0], **more}

    reply = await hook(folder, verb="job-start", **request)

    assert reply["ok"] is False
    assert reply["error"]


async def test_a_name_that_is_no_text_reaches_the_orchestrator_as_text(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    assert (await start_job(folder, user="\ud800", account="a" * 200))["ok"]

    job = await orchestrator.hears("started")
    assert (job.user, job.account) == (" ", "a" * 128)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.timeout(120)
async def test_no_value_in_any_call_ends_the_agent(
    agent: Agent, folder: Path, sim: SimConfig, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    hostile = Hostile(seed)
    await start_job(folder)
    register = v1.WorkloadMessage(register=v1.RegisterWorkload(job_id="17"))
    async with open_aio_channel(f"unix:{folder}/run/jobs/17/socket") as channel:
        await attack(channel, v1.DESCRIPTOR.services_by_name.values(), hostile, 15, lambda _: [register])
    lines = [hostile.line(["job-start", "job-end"], KEYS) for _ in range(100)]
    replies = [await answer(folder / "run" / "agent.sock", line) for line in lines]

    assert not all(reply["ok"] for reply in replies)
    assert not tracebacks(caplog.records)
    assert (await start_job(folder, "18"))["ok"]
    assert "18" in State(folder / "state").jobs
