from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.state import Job, Request, State
from slurm_interleave.node_agent.watch import Watch, is_over_in_slurm

# Names of this run alone: other tests on this host have processes of jobs too.
LOCAL = f"local-{os.getpid()}"
SLURM_JOB = f"{os.getpid()}000"


class Slurm:
    """Says of each job what the test wants."""

    def __init__(self, over: bool) -> None:
        self.over = over
        self.asked: list[str] = []

    async def is_over(self, job: str) -> bool:
        self.asked.append(job)
        return self.over


class Ends:
    """Remembers which jobs were ended."""

    def __init__(self, state: State) -> None:
        self.jobs: list[str] = []
        self._state = state

    async def end(self, job: str) -> None:
        self.jobs.append(job)
        del self._state.jobs[job]


def state_with(folder: Path, job: str) -> State:
    state = State(folder / "state")
    state.jobs[job] = Job(Request(job, "demo", "", (0,), 0, 0), "attempt", "token")
    return state


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={"INTERLEAVE_JOB_ID": LOCAL, **os.environ}) as process:
        yield process
        process.kill()


async def test_a_job_without_slurm_is_over_when_its_processes_are_gone(
    folder: Path, process: subprocess.Popen[bytes]
) -> None:
    state = state_with(folder, LOCAL)
    ends, slurm = Ends(state), Slurm(over=True)
    watch = Watch(state, ends.end, 1, slurm.is_over)
    await watch.look()
    await watch.look()
    assert ends.jobs == []

    process.kill()
    process.wait()
    await watch.look()
    await watch.look()

    assert ends.jobs == [LOCAL]
    assert slurm.asked == []


async def test_a_job_that_has_not_begun_is_not_over(folder: Path) -> None:
    state = state_with(folder, LOCAL)
    ends = Ends(state)
    watch = Watch(state, ends.end, 1, Slurm(over=True).is_over)

    for _ in range(20):
        await watch.look()

    assert ends.jobs == []


@pytest.mark.parametrize("over", [True, False])
async def test_of_a_slurm_job_without_processes_slurm_is_asked_rarely(folder: Path, over: bool) -> None:
    state = state_with(folder, SLURM_JOB)
    ends, slurm = Ends(state), Slurm(over)
    watch = Watch(state, ends.end, 1, slurm.is_over)

    for _ in range(20):
        await watch.look()

    assert ends.jobs == ([SLURM_JOB] if over else [])
    assert slurm.asked == ([SLURM_JOB] if over else [SLURM_JOB, SLURM_JOB])


@pytest.mark.parametrize(
    ("script", "over"),
    [
        ("echo COMPLETED", True),
        ("echo PENDING", True),
        ("echo RUNNING", False),
        ("echo COMPLETING", False),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", True),
        ("echo 'Unable to contact slurm controller' >&2; exit 1", False),
    ],
)
async def test_what_squeue_says_decides(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, over: bool
) -> None:
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    assert await is_over_in_slurm("17") is over


async def test_without_squeue_a_job_counts_as_alive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))

    assert await is_over_in_slurm("17") is False


def test_a_process_belongs_to_the_job_in_its_environment() -> None:
    longer = f"{SLURM_JOB}0"
    with subprocess.Popen(["sleep", "60"], env={"INTERLEAVE_JOB_ID": longer}) as process:
        found = processes.of_jobs([SLURM_JOB, longer])
        process.kill()

    assert found == {SLURM_JOB: [], longer: [process.pid]}


async def test_where_no_file_can_be_opened_no_job_is_over(
    folder: Path, process: subprocess.Popen[bytes]
) -> None:
    state = state_with(folder, LOCAL)
    ends = Ends(state)
    watch = Watch(state, ends.end, 1, Slurm(over=True).is_over)
    await watch.look()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    await asyncio.to_thread(processes.of_jobs, [])  # the thread is there before the files run out
    used = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                used.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(3):
            await watch.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in used:
            os.close(descriptor)

    assert ends.jobs == []


def test_a_process_that_cannot_be_read_for_want_of_files_is_not_taken_for_gone(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_files(_path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Path, "read_bytes", no_files)

    with pytest.raises(OSError, match="open files"):
        processes.of_jobs([LOCAL])


async def test_a_job_of_slurm_is_looked_at_closely_when_it_has_no_process_left(tmp_path: Path) -> None:
    state = state_with(tmp_path, SLURM_JOB)  # as while slurmctld is down at the end of its script
    seen: list[str] = []

    async def notice(job: Job, pids: list[int]) -> None:
        seen.append(job.job_id)

    watch = Watch(state, Ends(state).end, 1, Slurm(over=False).is_over, [notice])

    await watch.look()

    assert seen == [SLURM_JOB]
