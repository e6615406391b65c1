"""What becomes of processes that a real criu has brought back, when those end who wait for their end."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import LocalLab
from lab.processes import wait_until
from tests.lab.commands import PROGRAM
from tests.lab.draining import COUNTER, CRIU, NAME, NOT_HERE, counts, drain

pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LocalLab]:
    settings = {"backend": "noop", "criu": CRIU, "image_dir": str(tmp_path / "images")}
    with LocalLab.start(config={"agent": settings}) as started:
        yield started


@pytest.fixture
def job(lab: LocalLab, tmp_path: Path) -> str:
    """A job that was drained and counts again."""
    command = [str(PROGRAM), "run", "--own-turns", sys.executable, "-c", COUNTER, str(tmp_path / "end")]
    job = lab.submit(command, group="demo", name=NAME)
    assert wait_until(lambda: bool(counts(lab, job)), 60), lab.output(job)
    drain_until_saved(lab)
    lab.wait(job)
    lab.submit(command, group="demo", again=job)
    assert wait_until(lambda: bool(counts(lab, job)), 60), lab.output(job) + lab.logs("agent-local")
    return job


def drain_until_saved(lab: LocalLab) -> None:
    done = drain(lab)
    while "holds its devices now" in done.stderr:
        done = drain(lab)
    assert done.returncode == 0, done.stderr + lab.logs("agent-local")


def goes_on(lab: LocalLab, job: str) -> bool:
    """Tell whether it gets further turns, and its output is relayed for longer than `run` needs to end."""
    reached = counts(lab, job)[-1]
    return wait_until(lambda: counts(lab, job)[-1] > reached + 15, 60)


@pytest.mark.parametrize("end", ["restart", "kill9"])
def test_they_outlive_the_agent_that_brought_them_back(
    lab: LocalLab, job: str, tmp_path: Path, end: str
) -> None:
    getattr(lab, end)("agent-local")
    if end == "kill9":
        lab.start_again("agent-local")

    assert goes_on(lab, job), lab.output(job) + lab.logs("agent-local")
    assert lab.running(job)
    (tmp_path / "end").touch()
    assert lab.wait(job) == 1  # their parent alone could have known
    assert "how the resumed processes ended is not known" in lab.output(job)


def test_they_leave_no_zombie_where_nobody_asks_for_their_end_any_more(lab: LocalLab, job: str) -> None:
    found = re.search(r"resumed, as process (\d+)", lab.output(job))
    assert found is not None
    process = Path("/proc", found[1])
    assert process.exists()

    lab.cancel(job)

    assert wait_until(lambda: not process.exists(), 30)


def test_they_are_saved_and_brought_back_a_second_time(lab: LocalLab, job: str, tmp_path: Path) -> None:
    command = [str(PROGRAM), "run", "--own-turns", "false"]
    drain_until_saved(lab)
    lab.wait(job)
    reached = counts(lab, job)[-1]

    lab.submit(command, group="demo", again=job)

    assert wait_until(lambda: len(counts(lab, job)) > 2, 60), lab.output(job) + lab.logs("agent-local")
    assert counts(lab, job)[0] == reached + 1
    (tmp_path / "end").touch()
    assert lab.wait(job) == 7
