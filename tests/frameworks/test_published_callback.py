"""The client and slime callback that are published for the v1alpha1 services, unchanged, on ours."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

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


async def test_a_published_callback_takes_its_turns_in_both_groups(
    client: Client, n2: FakeAgent, package: Path
) -> None:
    env = {
        **os.environ,
        "PYTHONPATH": str(package),
        "TIMESLICE_ORCH_ADDR": client.address,
        "TIMESLICE_JOB_ID": "x",
        "TIMESLICE_TRAINER_GROUP": "trainers",
        "TIMESLICE_SAMPLER_GROUP": "samplers",
    }
    await client.lock("y", "trainers")

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        DRIVER,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
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
