"""Starts of jobs: what they register and make, and what the next start finds of the one before."""

from __future__ import annotations

import hashlib
import stat
import time
from pathlib import Path

import numpy as np
import pytest

from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.config import AgentConfig
from slurm_interleave.node_agent.images import Image, Images
from tests.node_agent.fakes import (
    OURS,
    FakeOrchestrator,
    config,
    device_of,
    environment,
    hook,
    running,
    start_job,
)


async def test_a_job_start_registers_the_job_and_makes_its_environment(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    reply = await start_job(folder, role="trainer", devices=[1, 0])
    started = await orchestrator.hears("started")
    variables = environment(folder)

    assert reply["ok"] is True
    assert (started.job_id, started.group, started.role, started.user) == ("17", "demo", "trainer", "alice")
    assert (list(started.devices), started.context) == ([0, 1], "none")
    assert started.token_sha256 == hashlib.sha256(variables["INTERLEAVE_TOKEN"].encode()).digest()
    assert variables["CUDA_VISIBLE_DEVICES"] == "SIM-n1-0,SIM-n1-1"
    assert variables["SLURM_GPUS_ON_NODE"] == "2"
    assert variables["INTERLEAVE_SIM_DIR"] == str(sim.directory)
    assert variables["INTERLEAVE_ORCHESTRATOR"] == orchestrator.address
    assert variables["TIMESLICE_TRAINER_GROUP"] == "demo"


async def test_a_jobs_files_are_closed_to_others(agent: Agent, folder: Path) -> None:
    await start_job(folder)
    job = folder / "run" / "jobs" / "17"

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (job, *job.iterdir())}

    assert modes == {"17": 0o711, "environment": 0o600, "socket": 0o600}


async def test_backend_and_longest_wait_of_the_submission_reach_the_job(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, backend="app_channel+sim", max_wait="600")
    started = await orchestrator.hears("started")

    variables = environment(folder)
    assert started.backend == variables["INTERLEAVE_BACKEND"] == "app_channel+sim"
    assert variables["INTERLEAVE_MAX_WAIT"] == "600"


async def test_profile_and_slowdown_of_the_submission_reach_the_job_and_the_orchestrator(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, profile="math-7B", max_slowdown="0")
    started = await orchestrator.hears("started")

    variables = environment(folder)
    assert started.profile == variables["INTERLEAVE_PROFILE"] == "math-7B"
    assert (started.HasField("max_slowdown"), started.max_slowdown) == (True, 0)
    assert variables["INTERLEAVE_MAX_SLOWDOWN"] == "0"


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": "magic"},
        {"max_wait": "soon"},
        {"max_wait": "-1"},
        {"profile": "a b"},
        {"max_slowdown": "x"},
    ],
)
async def test_a_submission_that_this_node_cannot_serve_is_refused(
    agent: Agent, folder: Path, wrong: dict[str, str]
) -> None:
    reply = await start_job(folder, **wrong)

    assert (reply["ok"], wrong.keys() & set(str(reply["error"]).replace(":", " ").split())) == (
        False,
        {*wrong},
    )


async def test_a_start_without_devices_says_what_to_do(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await orchestrator.stop()
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)):
        reply = await start_job(folder, devices=None)

    assert reply["ok"] is False
    assert reply["error"].startswith("node n1: job 17: neither Slurm nor the orchestrator named its devices")
    assert "requeue" in reply["error"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"group": "bad name"}, "group name 'bad name' is not allowed"),
        ({"devices": [7]}, "there is no device 7; there are 2, from 0"),
        ({"uid": "alice"}, "uid: 'alice' is not a whole number"),
        ({"job": "../x"}, "job id '../x' is not allowed"),
        ({"role": "a\nB=c"}, "role 'a\\nB=c' is not allowed"),
    ],
)
async def test_a_start_that_makes_no_sense_is_refused(
    agent: Agent, folder: Path, wrong: dict[str, object], text: str
) -> None:
    reply = await start_job(folder, **wrong)  # type: ignore[arg-type]

    assert reply["ok"] is False
    assert text in reply["error"]


async def test_a_start_twice_is_one_attempt(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, OURS)
    first = await orchestrator.hears("started")
    await start_job(folder, OURS)
    second = await orchestrator.hears("started")

    assert first.attempt == second.attempt


async def test_a_start_after_the_job_ran_is_a_clean_new_attempt(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, OURS)
    first = await orchestrator.hears("started")
    token = environment(folder, OURS)["INTERLEAVE_TOKEN"]
    device_of(sim, OURS).put(np.zeros(100))
    await orchestrator.asks("SNAPSHOT", OURS, "1-1")

    await start_job(folder, OURS)
    over, second = await orchestrator.hears("over"), await orchestrator.hears("started")

    assert over.attempt == first.attempt != second.attempt
    assert second.context == "none"
    assert environment(folder, OURS)["INTERLEAVE_TOKEN"] != token


def after_a_drain(folder: Path, orchestrator: FakeOrchestrator) -> AgentConfig:
    """Return the settings of an agent that has the image of a job."""
    images = Images(folder / "images")
    images.begin(OURS)
    images.finish(Image(OURS, 0, "demo", "token of before", 4711, {}))
    return config(folder, orchestrator.address, image_dir=str(folder / "images"))


async def test_a_job_whose_processes_were_saved_starts_with_a_token_of_its_own(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    """By the one that these know it would be taken for its run before, where that is still in the books."""
    settings = after_a_drain(folder, orchestrator)

    async with running(settings, sim, SimBackend("n1", sim)):
        await orchestrator.hears("hello")
        await start_job(folder, OURS)
        started, variables = await orchestrator.hears("started"), environment(folder, OURS)

    assert variables["INTERLEAVE_RESUME"] == "1"
    assert variables["INTERLEAVE_TOKEN"] != "token of before"
    assert started.token_sha256 == hashlib.sha256(variables["INTERLEAVE_TOKEN"].encode()).digest()
    assert started.resumed_token_sha256 == b""


@pytest.mark.parametrize(("restarts", "resumes"), [("0", False), ("1", True), ("", True)])
async def test_a_job_that_never_ran_resumes_nothing_of_a_job_that_had_its_id_before(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, restarts: str, resumes: bool
) -> None:
    settings = after_a_drain(folder, orchestrator)

    async with running(settings, sim, SimBackend("n1", sim)):
        await start_job(folder, OURS, restarts=restarts)
        first = environment(folder, OURS).get("INTERLEAVE_RESUME")
        await hook(folder, verb="job-end", job=OURS)
        await start_job(folder, OURS, restarts="1")
        second = environment(folder, OURS).get("INTERLEAVE_RESUME")

    assert (first, second) == (("1", "1") if resumes else (None, None))


async def test_a_start_after_slurm_put_the_job_back_is_a_new_attempt_that_says_when_it_began(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    before = time.time()
    await start_job(folder, restarts="0")
    first = await orchestrator.hears("started")
    await start_job(folder)  # by a step, which does not know
    again = await orchestrator.hears("started")
    await start_job(folder, restarts="1")
    over, second = await orchestrator.hears("over"), await orchestrator.hears("started")

    assert first.attempt == again.attempt == over.attempt != second.attempt
    assert (first.restarts, again.restarts, second.restarts) == (0, 0, 1)
    assert before <= first.started == again.started < second.started <= time.time()
