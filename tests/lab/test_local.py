"""The lab without Slurm and without root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import LabError, LocalLab
from lab.processes import belongings, wait_until

pytestmark = pytest.mark.timeout(60)

RUN_ONE_JOB = """
import os
from lab import LocalLab
assert os.geteuid() == 1000
with LocalLab.start() as lab:
    job = lab.submit(["env"], group="demo")
    print(lab.wait(job), "INTERLEAVE_TOKEN=" in lab.output(job))
"""
AS_A_USER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


@pytest.fixture(scope="module")
def lab() -> Iterator[LocalLab]:
    with LocalLab.start() as started:
        yield started


def seen_by(lab: LocalLab, job_id: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in lab.output(job_id).splitlines())


def test_a_job_gets_what_the_agent_prepared_for_it(lab: LocalLab) -> None:
    job = lab.submit(["env"], group="demo", devices=[1])

    assert lab.wait(job) == 0

    seen = seen_by(lab, job)
    assert (seen["INTERLEAVE_JOB_ID"], seen["INTERLEAVE_GROUP"]) == (job, "demo")
    assert seen["INTERLEAVE_SOCKET"].startswith("unix:")
    assert seen["CUDA_VISIBLE_DEVICES"].endswith("1")


def test_a_job_without_a_group_gets_its_devices_and_nothing_of_ours(lab: LocalLab) -> None:
    job = lab.submit(["env"], devices=[1])

    assert lab.wait(job) == 0

    seen = seen_by(lab, job)
    assert seen["CUDA_VISIBLE_DEVICES"] == "1"
    assert "INTERLEAVE_TOKEN" not in seen


def test_the_end_of_a_job_removes_what_the_agent_made_for_it(lab: LocalLab) -> None:
    job = lab.submit(["true"], group="demo")

    assert lab.wait(job) == 0

    assert not (lab.root / "run" / "local" / "jobs" / job).exists()


def test_the_exit_code_of_a_job_is_told(lab: LocalLab) -> None:
    assert lab.wait(lab.submit(["sh", "-c", "exit 7"], group="demo")) == 7


def test_cancel_ends_a_job_with_all_that_it_started(lab: LocalLab) -> None:
    job = lab.submit(["sh", "-c", "sleep 300 & sleep 300"], group="demo")

    lab.cancel(job)

    assert not lab.running(job)
    assert wait_until(lambda: not sleepers(lab), 60)


def sleepers(lab: LocalLab) -> set[int]:
    found = set()
    for pid in belongings(lab.root):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0"):
                found.add(pid)
    return found


def test_a_job_that_the_agent_refuses_is_not_started(lab: LocalLab) -> None:
    with pytest.raises(LabError, match=r"not registered: .*allowed are"):
        lab.submit(["true"], group="no spaces please")


def test_a_lab_without_slurm_leaves_no_process_and_no_folder() -> None:
    with LocalLab.start() as lab:
        lab.submit(["sleep", "300"], group="demo")

    assert not lab.root.exists()
    assert not lab.scratch.sim.exists()
    assert belongings(lab.root) == set()


def test_an_ordinary_user_can_run_it() -> None:
    command = [sys.executable, "-c", RUN_ONE_JOB]
    if os.geteuid() == 0:
        if shutil.which("unshare") is None or subprocess.run([*AS_A_USER, "true"], check=False).returncode:
            pytest.skip("no user namespaces here, in which to be an ordinary user")
        command = [*AS_A_USER, *command]
    environment = {**os.environ, "PYTHONPATH": "deploy"}

    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=40, check=False)

    assert (done.stdout.strip(), done.returncode) == ("0 True", 0), done.stderr
