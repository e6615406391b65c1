"""Real processes: the one that holds the devices is killed, its job's script lives on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from lab import LocalLab
from lab.processes import wait_until
from slurm_interleave.client.connect import ClientConfig, open_channel
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

pytestmark = pytest.mark.timeout(90)

HOLD = """
import os, signal
from slurm_interleave.client import Interleaver
Interleaver.from_env().acquire("train")
print("holds", os.getpid(), flush=True)
signal.pause()
"""
USE = """
import os, signal
import numpy as np
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice
Interleaver.from_env().acquire("train")
weights = SimDevice.open().put(np.arange(1000.0))
print("holds", os.getpid(), flush=True)
signal.pause()
"""
TAKE = """
from slurm_interleave.client import Interleaver
with Interleaver.from_env().turn("train"):
    print("took", flush=True)
"""


@pytest.fixture(params=["sim", "noop"])
def lab(request: pytest.FixtureRequest) -> Iterator[LocalLab]:
    config = {"agent": {"backend": request.param, "watch_s": 0.1}, "turns": {"gone_grace_s": 1.0}}
    with LocalLab.start(config=config) as started:
        yield started


def script(lab: LocalLab, code: str) -> str:
    """Submit a job whose script goes on when its Python has ended; return its id."""
    command = '"$@" & wait $!; echo "went on"; exec sleep 300'
    return lab.submit(["sh", "-c", command, "sh", sys.executable, "-c", code], group="demo")


def pid_of(lab: LocalLab, job: str, word: str) -> int:
    assert wait_until(lambda: word in lab.output(job), 60), lab.output(job)
    return int(lab.output(job).partition(f"{word} ")[2].split()[0])


def slices(lab: LocalLab) -> dict[str, str]:
    client = load_section(ClientConfig, "client", lab.config)
    with open_channel(client.orchestrator) as channel:
        stub = rpc.InterleaveStub(channel)  # type: ignore[no-untyped-call]
        pages = stub.ListSlices(pb.ListSlicesRequest())
        return {row.job_id: row.state for page in pages for row in page.slices}


@pytest.mark.parametrize("code", [HOLD, USE], ids=["no state", "state on the device"])
def test_who_waits_goes_on_when_the_holder_was_killed_and_its_job_lives(lab: LocalLab, code: str) -> None:
    first = script(lab, code)
    pid = pid_of(lab, first, "holds")
    second = lab.submit([sys.executable, "-c", TAKE], group="demo")

    os.kill(pid, signal.SIGKILL)

    assert lab.wait(second, 30) == 0, lab.output(second)
    assert "took" in lab.output(second)
    assert lab.running(first)
    assert slices(lab) == {first: "ABANDONED", second: "YIELDED"}


def test_who_holds_and_lives_is_left_alone(lab: LocalLab) -> None:
    first = script(lab, HOLD)
    pid_of(lab, first, "holds")
    second = lab.submit([sys.executable, "-c", TAKE], group="demo")

    assert not wait_until(lambda: not lab.running(second), 3)

    assert slices(lab)[first] == "RUNNING"
