"""`interleave cancel-operation` with all programs as they are: orchestrator, agent, jobs and command line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import LocalLab
from lab.processes import wait_until
from tests.lab.commands import interleave

pytestmark = pytest.mark.timeout(60)
HOLDS = """
import sys
import numpy as np
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice

turns, values = Interleaver.from_env(), np.random.default_rng(3).integers(0, 256, 4 << 20, dtype=np.uint8)
with turns.turn("load"):
    state = SimDevice.open().put(values)
print("loaded", flush=True)
sys.stdin.readline()
with turns.turn("check"):
    print("right" if np.array_equal(state.get(), values) else "wrong", flush=True)
"""
WAITS = """
import numpy as np
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice

with Interleaver.from_env().turn("use"):
    SimDevice.open().put(np.ones(10))
"""


@pytest.fixture
def lab() -> Iterator[LocalLab]:
    """On its devices a snapshot lasts 20 s."""
    with LocalLab.start(config={"sim": {"snapshot_gib_s": 0.0002}}) as started:
        yield started


def said_to(lab: LocalLab, *arguments: str) -> str:
    done = interleave(lab, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def saving(lab: LocalLab) -> tuple[str, str, Path]:
    """Return a job whose state is being saved, who waits for that, and what lets the job go on."""
    fifo = lab.root / "go"
    subprocess.run(["mkfifo", fifo], check=True)
    script = ["bash", "-c", 'exec 3<>"$0"; exec "$1" -c "$2" <&3', str(fifo), sys.executable, HOLDS]
    job = lab.submit(script, group="demo")
    assert wait_until(lambda: "loaded" in lab.output(job), 60), lab.output(job)
    waiter = lab.submit([sys.executable, "-c", WAITS], group="demo")
    assert wait_until(lambda: "saving" in said_to(lab, "status"), 60)
    return job, waiter, fifo


@pytest.mark.parametrize(
    "killed",
    [[], ["interleaved"], ["agent-local"], ["interleaved", "agent-local"]],
    ids=["none is killed", "interleaved is killed", "the agent is killed", "both are killed"],
)
def test_a_job_whose_snapshot_is_cancelled_runs_on_and_who_waits_for_it_stays_queued(
    lab: LocalLab, saving: tuple[str, str, Path], killed: list[str]
) -> None:
    job, waiter, fifo = saving
    for name in killed:
        lab.kill9(name)
    for name in killed:
        lab.start_again(name)

    said = said_to(lab, "cancel-operation", job)
    status = said_to(lab, "status")

    assert said.splitlines() == [f"job {job}: on node local: resident"], lab.logs("interleaved")
    assert "faulted" not in status
    assert [line for line in status.splitlines() if waiter in line]
    assert not re.search("saving|unknown", status), status
    lab.cancel(waiter)
    with fifo.open("w") as pipe:
        pipe.write("\n")
    assert lab.wait(job) == 0
    assert "right" in lab.output(job), lab.logs("agent-local")
