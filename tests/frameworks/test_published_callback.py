"""The client and slime callback that are published for the v1alpha1 services, unchanged, on ours."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lab import LocalLab
from lab.interleave_conf import SimSettings
from slurm_interleave.client.sim.records import VIOLATIONS, read_lines
from tests.frameworks.sources import source
from tests.orchestrator.conftest import client, n1, orchestrator
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client

__all__ = ["client", "n1", "orchestrator"]

WIRE = "slurm_interleave.client.wire"
# What its build makes of the protos, which are ours too, and the class that slime's fork gives callbacks.
MADE = {
    "timeslice/orchestrator/_generated/timeslice_orchestrator_pb2.py": "timeslice_orchestrator_v1alpha1_pb2",
    "timeslice/orchestrator/_generated/timeslice_orchestrator_pb2_grpc.py": (
        "timeslice_orchestrator_v1alpha1_pb2_grpc"
    ),
    "timeslice/snapshot_agent/snapshot_agent_pb2.py": "snapshot_agent_v1alpha1_pb2",
    "timeslice/snapshot_agent/snapshot_agent_pb2_grpc.py": "snapshot_agent_v1alpha1_pb2_grpc",
}
BASE = """
class PhaseCallback:
    pass
"""
DRIVER = """
from timeslice_slime.callback import TimesliceCallback

callback = TimesliceCallback()
for phase, role in [("init", "both"), ("generate", "sampler"), ("train", "trainer"), ("weight_sync", "both")]:
    callback.on_phase_begin(phase, role)
    print("DOES", phase, flush=True)
    callback.on_phase_end(phase, role)
callback.close()
"""
# A job of one group: its state fills the device, and is looked at in each phase.
SHARING = """
import numpy as np
from slurm_interleave.client.sim import SimDevice
from timeslice_slime.callback import TimesliceCallback

callback, device = TimesliceCallback(), SimDevice.open()
callback.on_phase_begin("init", "both")
state = device.put(np.arange(900 << 7))
callback.on_phase_end("init", "both")
for _ in range(4):
    for phase, role in [("generate", "sampler"), ("train", "trainer"), ("weight_sync", "both")]:
        callback.on_phase_begin(phase, role)
        device.run(phase, np.sum, state, seconds=0.05)
        assert (state.get() == np.arange(900 << 7)).all()
        callback.on_phase_end(phase, role)
callback.close()
print("DONE")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder of the published packages."""
    for path, text in source("timeslice").files.items():
        for parent in ("pkg/client/python/", "pkg/integrations/slime/"):
            if path.startswith((f"{parent}timeslice/", f"{parent}timeslice_slime/")):
                write(tmp_path / path.removeprefix(parent), text)
    for name, module in MADE.items():
        write(tmp_path / name, f"from {WIRE}.{module} import *\n")
    for name in ("health_pb2", "health_pb2_grpc"):
        write(tmp_path / f"timeslice/snapshot_agent/{name}.py", f"from grpc_health.v1.{name} import *\n")
    write(tmp_path / "slime/utils/phase_callback.py", BASE)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest_asyncio.fixture
async def n2(client: Client, n1: FakeAgent) -> AsyncIterator[FakeAgent]:
    """A second node: job x has its trainers on n1 and its samplers here, and y its trainers beside x."""
    agent = await FakeAgent(client.address, "n2").connect()
    await n1.start("x", "trainers", 1)
    await n1.start("y", "trainers", 1)
    await agent.start("x", "samplers")
    yield agent
    await agent.close()


async def driver(client: Client, package: Path) -> asyncio.subprocess.Process:
    env = {
        **os.environ,
        "PYTHONPATH": str(package),
        "TIMESLICE_ORCH_ADDR": client.address,
        "TIMESLICE_JOB_ID": "x",
        "TIMESLICE_TRAINER_GROUP": "trainers",
        "TIMESLICE_SAMPLER_GROUP": "samplers",
    }
    pipe, argv = asyncio.subprocess.PIPE, (sys.executable, "-c", DRIVER)
    return await asyncio.create_subprocess_exec(*argv, env=env, stdout=pipe, stderr=asyncio.subprocess.STDOUT)


async def test_a_published_callback_takes_its_turns_in_both_groups(
    client: Client, n2: FakeAgent, package: Path
) -> None:
    await client.lock("y", "trainers")

    process = await driver(client, package)
    await client.waiting(1, "trainers")
    await client.unlock("y", "trainers")
    out = (await process.communicate())[0].decode()

    assert process.returncode == 0, out
    said = [line.split() for line in out.splitlines() if " role=" in line or line.startswith("DOES")]
    events = [" ".join(words[:2] if words[0] == "DOES" else words[2:4]) for words in said]
    both = ["ACQUIRE role=trainer", "ACQUIRE role=sampler"]
    freed = ["RELEASE role=sampler", "RELEASE role=trainer"]
    assert events == [
        *both,
        "DOES init",
        *freed,
        "ACQUIRE role=sampler",
        "DOES generate",
        "RELEASE role=sampler",
        "ACQUIRE role=trainer",
        "DOES train",
        "RELEASE role=trainer",
        *both,
        "DOES weight_sync",
        *freed,
    ]
    assert "FAILED" not in out


def test_jobs_of_one_group_run_it_with_what_their_environment_says(package: Path) -> None:
    with LocalLab.start(devices=1, sim=SimSettings(memory_mib=1)) as lab:
        command = [sys.executable, "-c", SHARING]
        env = {"PYTHONPATH": str(package)}
        jobs = [lab.submit(command, group="pair", devices=[0], name=f"slime-{n}", env=env) for n in "ab"]
        for job in jobs:
            assert lab.wait(job, 100) == 0, lab.output(job)
            said = lab.output(job)
            assert "DONE" in said
            assert "FAILED" not in said
            assert said.count("ACQUIRE role=sampler group=pair/sampler") == 1 + 4 * 2
            assert said.count("ACQUIRE role=trainer group=pair ") == 1 + 4 * 2
            assert "context_restored=True" in said
        assert read_lines(lab.scratch.sim / "local" / VIOLATIONS) == []
