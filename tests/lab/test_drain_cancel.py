"""`interleave cancel-operation` of a job whose memory a real criu writes to disk."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import LocalLab
from lab.processes import wait_until
from tests.lab.commands import PROGRAM
from tests.lab.draining import COUNTER, CRIU, NAME, NOT_HERE, counts, drain

pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)]
MIB = 1 << 20
PIPES: Any = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
# So much memory that its dump is seen while it lasts; the job looks at the end whether it is what it was.
HOLDS = f'held = b"\\1" * ({400 * MIB})\n' + COUNTER.replace(
    "        try:\n", "        assert held.count(1) == len(held)\n        try:\n"
)


@pytest.fixture
def stopping(tmp_path: Path) -> Path:
    """Return a criu that stands still as it begins to dump; its pid is in the file beside it."""
    program = tmp_path / "stopping-criu"
    lines = [
        "#!/bin/sh",
        f'if [ "$1" = dump ] && mkdir {tmp_path}/once; then',
        f"    echo $$ >{program}.new && mv {program}.new {program}.pid && kill -STOP $$",
        "fi",
        f'exec {CRIU} "$@"',
    ]
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def lab(tmp_path: Path, stopping: Path) -> Iterator[LocalLab]:
    settings = {"backend": "noop", "criu": str(stopping), "image_dir": str(tmp_path / "images")}
    with LocalLab.start(config={"agent": settings}) as started:
        yield started


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def executable(pid: int) -> list[str]:
    """Return where the process may run code."""
    return [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "x" in line.split()[1]]


def stop_amid(pid: int, pages: Path) -> None:
    """Let a dump that stands still go on until it writes *pages*, and stand still again."""
    while not (pages.exists() and pages.stat().st_size):
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.002)
        os.kill(pid, signal.SIGSTOP)
        assert wait_until(lambda: is_stopped(pid), 10)


def begin_drain(lab: LocalLab, dumping: Path) -> subprocess.Popen[str]:
    """Drain the node until the job's turn is over and *dumping* is there."""
    argv = [PROGRAM, "drain", "local", "--keep-node", "--config", lab.config]
    draining = subprocess.Popen(argv, env=lab.env, **PIPES)
    while not dumping.exists():
        time.sleep(0.02)
        if draining.poll() is not None:
            assert "holds its devices now" in draining.communicate()[1]
            draining = subprocess.Popen(argv, env=lab.env, **PIPES)
    return draining


def test_a_job_whose_dump_is_cancelled_runs_on_unharmed_and_can_be_drained_again(
    lab: LocalLab, stopping: Path, tmp_path: Path
) -> None:
    end, pid_file = tmp_path / "end", stopping.with_suffix(".pid")
    command = [str(PROGRAM), "run", "--own-turns", sys.executable, "-c", HOLDS, str(end)]
    job = lab.submit(command, group="demo", name=NAME)
    assert wait_until(lambda: bool(counts(lab, job)), 60), lab.output(job)
    draining = begin_drain(lab, pid_file)
    pid = int(pid_file.read_text())
    root = int(Path(f"/proc/{pid}/cmdline").read_text().split("\0")[4])
    code = executable(root)
    assert wait_until(lambda: is_stopped(pid), 10)
    stop_amid(pid, tmp_path / "images" / f".{job}.new" / "pages-1.img")

    argv = [PROGRAM, "cancel-operation", job, "--config", lab.config]
    cancelling = subprocess.Popen(argv, env=lab.env, **PIPES)
    assert wait_until(lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE) == (0, 0), 30)
    os.kill(pid, signal.SIGCONT)
    cancelled, drained = cancelling.communicate(), draining.communicate()

    assert (cancelling.returncode, cancelled[1]) == (0, "")
    assert cancelled[0].startswith(f"job {job}: on node local: ")
    assert (draining.returncode, drained[1].splitlines()[0]) == (1, f"job {job}: runs on: cancelled")
    assert executable(root) == code, "criu has left something of its own in the job"
    assert list((tmp_path / "images").iterdir()) == []
    assert not Path(f"/proc/{pid}").exists()
    reached = len(counts(lab, job))
    assert wait_until(lambda: len(counts(lab, job)) > reached + 2, 30), lab.output(job)
    again = drain(lab)
    while "holds its devices now" in again.stderr:
        again = drain(lab)
    assert again.returncode == 0, again.stderr + lab.logs("agent-local")
    assert lab.wait(job) == 128 + signal.SIGKILL
    end.touch()
    lab.submit(command, group="demo", again=job)
    assert lab.wait(job) == 7, lab.output(job) + lab.logs("agent-local")
