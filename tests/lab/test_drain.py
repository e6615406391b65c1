"""`interleave drain` with a real criu: a job's processes are saved, and go on where they were."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import LocalLab
from lab.processes import wait_until
from tests.lab.commands import PROGRAM
from tests.lab.draining import COUNTER, CRIU, NAME, NOT_HERE, counts, drain

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)]

# Moves its own state, and saves on disk where it is told to, as the torch backend does.
SPILLER = """
import itertools, mmap, os, sys, tempfile, time
import numpy as np
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.workload import Workload

secret = np.frombuffer(os.urandom(4 << 20), np.uint8)

class State:
    tags, can_discard, spills, arena_bytes = (), False, True, 0

    def __init__(self):
        self.buffer = SimDevice.open().put(secret)

    def suspend(self, tags, *, discard):
        if self.buffer is None:
            return
        [folder] = [tag[len("spill:"):] for tag in tags if tag.startswith("spill:")]
        self.file = tempfile.TemporaryFile(dir=folder)
        self.file.write(self.buffer.get().tobytes())
        self.file.flush()
        self.map = mmap.mmap(self.file.fileno(), secret.nbytes)
        self.buffer.free()
        self.buffer = None

    def resume(self, tags):
        if self.buffer is None:
            self.buffer = SimDevice.open().put(np.frombuffer(self.map[:], np.uint8))
            self.file.close()

turns = Interleaver.from_env()
with turns.turn("load"):
    state = State()
    workload = Workload.from_env(state)
print("loaded", flush=True)
while not os.path.exists(sys.argv[1] + ".go"):
    time.sleep(0.1)
for number in itertools.count(1):
    with turns.turn("count"):
        right = np.array_equal(state.buffer.get(), secret)
        print("counts", number, "right" if right else "wrong", flush=True)
    time.sleep(0.2)
    if os.path.exists(sys.argv[1]):
        sys.exit(7)
"""
PARTNER = """
import numpy as np
from slurm_interleave.client import Interleaver
from slurm_interleave.client.sim import SimDevice

with Interleaver.from_env().turn("once"):
    SimDevice.open().put(np.ones(10))
print("had its turn", flush=True)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LocalLab]:
    settings = {"backend": "noop", "criu": CRIU, "image_dir": str(tmp_path / "images")}
    with LocalLab.start(config={"agent": settings}) as started:
        yield started


def test_a_drained_job_goes_on_where_it_was_when_it_starts_again(lab: LocalLab, tmp_path: Path) -> None:
    end = tmp_path / "end"
    command = [str(PROGRAM), "run", "--own-turns", sys.executable, "-c", COUNTER, str(end)]
    job = lab.submit(command, group="demo", name=NAME)
    assert wait_until(lambda: len(counts(lab, job)) > 3, 60), lab.output(job)

    done = drain(lab)
    while "holds its devices now" in done.stderr:
        done = drain(lab)

    assert done.returncode == 0, done.stderr + lab.logs("agent-local")
    assert f"job {job}: saved (" in done.stdout
    assert lab.wait(job) == 128 + signal.SIGKILL
    before = counts(lab, job)
    lab.submit(command, group="demo", again=job)
    assert wait_until(lambda: len(counts(lab, job)) > 3, 30), lab.output(job) + lab.logs("agent-local")
    assert counts(lab, job)[0] == before[-1] + 1, lab.output(job)
    assert "resume no" in lab.output(job)
    end.touch()
    assert lab.wait(job) == 7
    assert not (tmp_path / "images" / job).exists()


def test_a_job_that_cannot_be_saved_runs_on_and_says_why(lab: LocalLab, tmp_path: Path) -> None:
    command = [sys.executable, "-c", COUNTER, str(tmp_path / "end")]
    job = lab.submit(command, group="demo", name=NAME)
    assert wait_until(lambda: bool(counts(lab, job)), 60), lab.output(job)

    done = drain(lab)
    while "holds its devices now" in done.stderr:
        done = drain(lab)

    assert done.returncode == 1
    assert f"job {job}: runs on: job {job} has no process that `interleave run` started" in done.stderr
    reached = len(counts(lab, job))
    assert wait_until(lambda: len(counts(lab, job)) > reached, 60)


def test_an_image_that_cannot_be_restored_is_kept_aside_and_the_job_begins_anew(
    lab: LocalLab, tmp_path: Path
) -> None:
    command = [str(PROGRAM), "run", "--own-turns", sys.executable, "-c", COUNTER, str(tmp_path / "end")]
    job = lab.submit(command, group="demo", name=NAME)
    assert wait_until(lambda: len(counts(lab, job)) > 2, 60), lab.output(job)
    done = drain(lab)
    while "holds its devices now" in done.stderr:
        done = drain(lab)
    assert done.returncode == 0, done.stderr
    lab.wait(job)
    (tmp_path / "images" / job / "inventory.img").write_bytes(b"")

    lab.submit(command, group="demo", again=job)

    assert wait_until(lambda: bool(counts(lab, job)), 30), lab.output(job)
    assert counts(lab, job)[0] == 1
    assert "cannot resume, so it begins from the start: criu restore failed" in lab.output(job)
    kept = tmp_path / "images" / f".{job}.failed"
    assert f"what was saved is kept in {kept}" in lab.output(job)
    assert (kept / "restore.log").exists()


def test_a_job_whose_state_is_on_the_nodes_disk_takes_it_along(tmp_path: Path) -> None:
    end, spill = tmp_path / "end", tmp_path / "spill"
    spill.mkdir()
    settings = {"criu": CRIU, "image_dir": str(tmp_path / "images")}
    settings |= {"spill_dir": str(spill), "host_memory_gib": 1 / 1024}
    with LocalLab.start(config={"agent": settings}) as lab:
        command = [str(PROGRAM), "run", "--own-turns", sys.executable, "-c", SPILLER, str(end)]
        job = lab.submit(command, group="demo", name=NAME)
        assert wait_until(lambda: "loaded" in lab.output(job), 60), lab.output(job) + lab.logs("agent-local")
        partner = lab.submit([sys.executable, "-c", PARTNER], group="demo", name=f"{NAME}-partner")
        assert lab.wait(partner) == 0, lab.output(partner) + lab.logs("agent-local")

        done = drain(lab)

        assert done.returncode == 0, done.stderr + lab.logs("agent-local")
        assert lab.wait(job) == 128 + signal.SIGKILL
        (tmp_path / "end.go").touch()
        lab.submit(command, group="demo", again=job)
        assert wait_until(lambda: len(counts(lab, job)) > 3, 30), lab.output(job) + lab.logs("agent-local")
        end.touch()
        assert lab.wait(job) == 7
        assert lab.output(job).count("right") == len(counts(lab, job))
        assert "wrong" not in lab.output(job)
