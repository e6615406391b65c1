"""Jobs and machines whose processes cannot be saved, and what is said of them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.criu import Criu, CriuFailed
from slurm_interleave.node_agent.images import Images
from tests.node_agent.saving import JOB, ORDER, command, criu, drains

__all__ = ["command"]


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


async def test_an_attempt_that_is_over_is_not_saved(tmp_path: Path) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))

    assert "not on this node any more" in (await saving.save(pb.Drain(job_id=JOB, attempt="b"))).error


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


async def test_without_criu_the_error_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(CriuFailed, match=r"cannot be run .*No such file.* \[agent\] criu"):
        await Criu(str(tmp_path / "none"), 5).check()


async def test_without_a_folder_for_images_the_error_names_the_key(tmp_path: Path) -> None:
    saving, _ = drains(tmp_path, criu(tmp_path))
    saving._images = Images(None)

    assert "[agent] image_dir is not set" in (await saving.save(ORDER)).error
