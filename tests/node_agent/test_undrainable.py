"""Jobs and machines whose processes cannot be saved, and what is said of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent import processes
from slurm_interleave.node_agent.contexts import JobContext
from slurm_interleave.node_agent.criu import Criu, CriuFailed
from slurm_interleave.node_agent.images import Images
from tests.node_agent.saving import JOB, ORDER, Slurm, command, criu, drains, stands_still, until

__all__ = ["command"]


@contextlib.contextmanager
def beside(command: subprocess.Popen[bytes], script: str) -> Iterator[int]:
    """Run *script* with the environment of *command*; give the process that it names, and leaves."""
    words = Path(f"/proc/{command.pid}/environ").read_text().rstrip("\0").split("\0")
    environment = dict(word.split("=", 1) for word in words)
    argv = ["sh", "-c", script]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        until(lambda: pid == process.pid or processes.parent(pid) != process.pid)
        try:
            yield pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


async def test_one_node_of_several_is_not_saved(tmp_path: Path, command: subprocess.Popen[bytes]) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))
    job.request = replace(job.request, nodes=("n1", "n2"))

    assert "runs on 2 nodes" in (await saving.save(ORDER)).error


async def test_what_another_user_marks_as_the_jobs_command_is_not_touched(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))
    job.request = replace(job.request, uid=os.getuid() + 1)

    assert "has no process that `interleave run` started" in (await saving.save(ORDER)).error
    assert command.poll() is None


async def test_a_job_without_the_command_says_what_to_write(tmp_path: Path) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))

    assert "must say `interleave run COMMAND`" in (await saving.save(ORDER)).error


@pytest.mark.parametrize(
    "script", ["echo $$; exec sleep 1000", "sleep 1000 >&- & echo $!"], ids=["second command", "daemon"]
)
async def test_of_several_process_trees_none_is_saved_without_the_others(
    tmp_path: Path, command: subprocess.Popen[bytes], script: str
) -> None:
    slurm = Slurm()
    saving, job = drains(tmp_path, criu(tmp_path), slurm)
    job.context = JobContext(Context.RESIDENT)
    with beside(command, script) as other:
        update = await saving.save(ORDER)

    trees = ", ".join(map(str, sorted([command.pid, other])))
    assert f"2 process trees that `interleave run` started (from {trees})" in update.error
    assert (slurm.requeued, command.poll(), job.context.state) == ([], None, Context.RESIDENT)


@pytest.mark.parametrize("attempt", ["a", "b"], ids=["its end is under way", "another has begun"])
async def test_an_attempt_that_is_over_is_not_saved(
    tmp_path: Path, command: subprocess.Popen[bytes], attempt: str
) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))
    job.ended = attempt == "a"

    assert "not on this node any more" in (await saving.save(pb.Drain(job_id=JOB, attempt=attempt))).error
    assert command.poll() is None


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ({"version": "3.17.1"}, "3.17.1, too old: Debian 12's 3.17 fails on new kernels; install criu 4.1"),
        ({"version": "4.0"}, "4.0, too old"),
        ({"version": "?"}, "answered 'Version: ?'"),
        (
            {"check": "echo 'Error (criu/x.c:1): no vDSO'; exit 1"},
            "criu check fails on this kernel: (criu/x.c:1)",
        ),
    ],
)
async def test_a_criu_that_cannot_work_here_says_what_to_install(
    tmp_path: Path, program: dict[str, str], reason: str
) -> None:
    with pytest.raises(CriuFailed) as caught:
        await criu(tmp_path, **program).check()

    assert reason in str(caught.value)


@pytest.mark.parametrize("version", ["4.1", "4.1.1", "4.2.1", "5.0", "10.0"])
async def test_criu_4_1_and_later_are_taken(tmp_path: Path, version: str) -> None:
    await criu(tmp_path, version=version).check()


async def test_a_job_is_not_touched_where_criu_cannot_work(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, job = drains(tmp_path, criu(tmp_path, f"touch {tmp_path}/dumped", version="3.17.1"))
    job.context = JobContext(Context.RESIDENT)

    update = await saving.save(ORDER)

    assert "3.17.1, too old" in update.error
    assert job.context.state is Context.RESIDENT
    assert not (tmp_path / "dumped").exists()


async def test_without_criu_the_error_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(CriuFailed, match=r"cannot be run .*No such file.* \[agent\] criu"):
        await Criu(str(tmp_path / "none"), 5).check()


async def test_without_a_folder_for_images_the_error_names_the_key(tmp_path: Path) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))
    saving._images = Images(None)
    job.context = JobContext(Context.RESIDENT)

    assert "[agent] image_dir is not set" in (await saving.save(ORDER)).error
    assert job.context.state is Context.RESIDENT  # not taken off its devices for nothing


async def test_a_folder_for_images_that_takes_none_is_named(
    tmp_path: Path, command: subprocess.Popen[bytes]
) -> None:
    saving, job = drains(tmp_path, criu(tmp_path))
    (tmp_path / "images").write_text("")

    error = (await saving.save(ORDER)).error

    assert f"[agent] image_dir: {tmp_path}/images/.{JOB}.new cannot be made: Not a directory" in error
    assert not stands_still(command)
    assert not job.saving
