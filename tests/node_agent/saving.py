"""A job whose processes are saved by a program that answers as criu does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import SlurmFailed
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.protocol import Backend
from slurm_interleave.node_agent.criu import Criu
from slurm_interleave.node_agent.drain import Drains
from slurm_interleave.node_agent.images import Images
from slurm_interleave.node_agent.operations import Operations
from slurm_interleave.node_agent.state import Job, Request, State

# Of this run of the tests alone: its processes are found on the whole host.
JOB = f"drain-{os.getpid()}"
ORDER = pb.Drain(job_id=JOB, attempt="a")
WELL = 'echo pages >"$6/pages-1.img"; kill -STOP "$3"'


def criu(folder: Path, dump: str = WELL, *, version: str = "4.2.1", check: str = "echo Looks good.") -> Criu:
    """Return a criu that does *dump*; its words are dump --tree PID --leave-stopped --images-dir FOLDER."""
    program = folder / "criu"
    lines = [f"--version) echo Version: {version};;", f"check) {check};;", f"dump) {dump};;"]
    program.write_text("#!/bin/sh\ncase $1 in\n" + "\n".join(lines) + "\nesac\n")
    program.chmod(0o755)
    return Criu(str(program), 5.0)


class Slurm:
    """Requeues, or does not."""

    def __init__(self, refusal: str = "") -> None:
        self.requeued: list[str] = []
        self.restarts: list[int | None] = []
        self.refusal = refusal

    async def requeue(self, job_id: str, restarts: int | None) -> None:
        self.restarts.append(restarts)
        if self.refusal:
            raise SlurmFailed(self.refusal)
        self.requeued.append(job_id)


def until(so: Callable[[], object]) -> None:
    while not so():
        pass


@pytest.fixture
def command() -> Iterator[subprocess.Popen[bytes]]:
    """What `interleave run` has started for the job."""
    environment = {**os.environ, "INTERLEAVE_JOB_ID": JOB, "INTERLEAVE_RUN": "1"}
    with subprocess.Popen(["sleep", "1000"], env=environment, start_new_session=True) as process:
        # Popen returns as the program begins, a little before the kernel shows its environment.
        until(lambda: b"INTERLEAVE_RUN" in Path(f"/proc/{process.pid}/environ").read_bytes())
        yield process
        process.kill()


@contextlib.contextmanager
def a_tree(job: str = JOB) -> Iterator[subprocess.Popen[bytes]]:
    """What `interleave run` has started for the job, with a child of its own."""
    environment = {**os.environ, "INTERLEAVE_JOB_ID": job, "INTERLEAVE_RUN": "1"}
    script = ["sh", "-c", "sleep 1000 & wait"]
    with subprocess.Popen(script, env=environment, start_new_session=True) as process:
        until(lambda: b"INTERLEAVE_RUN" in Path(f"/proc/{process.pid}/environ").read_bytes())
        until(lambda: children(process))
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def children(process: subprocess.Popen[bytes]) -> list[int]:
    return list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))


def drains(
    folder: Path,
    program: Criu,
    slurm: Slurm | None = None,
    backend: Backend | None = None,
    report: Callable[[Job], None] = lambda _: None,
) -> tuple[Drains, Job]:
    state = State(folder / "state")
    job = Job(Request(JOB, "demo", "", (0,), os.getuid(), 0), "a", "token")
    state.jobs[JOB] = job
    moving = Operations(state, backend or NoopBackend("n1", 1), 5.0, lambda *_: None)
    images, known = Images(folder / "images"), asyncio.Event()
    known.set()
    requeue = (slurm or Slurm()).requeue

    return Drains(state, moving, images, program, lambda _: None, report, lambda _: known, requeue), job


def stands_still(process: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
