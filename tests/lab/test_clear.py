"""`interleave clear` with all programs as they are: orchestrator, agent, job and command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from lab import LocalLab
from lab.processes import wait_until
from tests.lab.commands import interleave

pytestmark = pytest.mark.timeout(60)
JOB = """
import numpy as np
from slurm_interleave.client import Interleaver, JobFaulted
from slurm_interleave.client.sim import SimDevice

turns, device = Interleaver.from_env(), SimDevice.open()
turns.acquire("load")
device.put(np.ones(1000))
turns.yield_()
print("loaded", flush=True)
input()
try:
    turns.acquire("train")
except JobFaulted as error:
    print("faulted:", error, flush=True)
input()
turns.acquire("train")
weights = device.put(np.ones(1000))
print("trains again", weights.get().sum(), flush=True)
turns.yield_()
"""
OTHER = """
import numpy as np
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice

turns, device = Interleaver.from_env(), SimDevice.open()
turns.acquire()
device.put(np.ones(10))
turns.yield_()
print("had its turn", flush=True)
input()
"""


@pytest.fixture
def lab() -> Iterator[LocalLab]:
    with LocalLab.start() as started:
        yield started


def says(lab: LocalLab, job: str, text: str) -> None:
    assert wait_until(lambda: text in lab.output(job), 60), lab.output(job)


def test_a_faulted_job_is_cleared_by_an_operator_and_takes_turns_again(lab: LocalLab) -> None:
    fifos = [lab.root / name for name in ("a", "b")]
    for fifo in fifos:
        subprocess.run(["mkfifo", fifo], check=True)
    run = 'exec 3<>"$0"; exec "$1" -c "$2" <&3'
    job = lab.submit(["bash", "-c", run, str(fifos[0]), sys.executable, JOB], group="demo")
    says(lab, job, "loaded")
    other = lab.submit(["bash", "-c", run, str(fifos[1]), sys.executable, OTHER], group="demo")
    says(lab, other, "had its turn")
    [saved] = (lab.scratch.sim / "local" / "host" / job).iterdir()
    saved.write_bytes(b"x" * saved.stat().st_size)
    with fifos[0].open("w") as fifo:
        fifo.write("\n")
    says(lab, job, "faulted:")

    done = interleave(lab, "clear", job)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"job {job}: no longer faulted in group demo",
        f"job {job}: lost on node local: device state of 0 (faulted)",
    ]
    with fifos[0].open("w") as fifo:
        fifo.write("\n")
    says(lab, job, "trains again 1000.0")
    assert lab.wait(job) == 0
    again = interleave(lab, "clear", job)
    assert again.returncode == 1
    assert "is not faulted" in again.stderr
