"""The disk of image_dir fills up in the middle of a drain: the job runs on, and is saved later."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node_agent.saving import JOB, ORDER, WELL, Slurm, command, criu, drains, stands_still
from tests.small_disk import SmallDisk, small_disk

__all__ = ["command"]
FILLS = 'cat /dev/zero >"$6/pages-1.img" 2>/dev/null'


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """What image_dir is on."""
    with small_disk(tmp_path / "disk", 2048) as disk:
        (tmp_path / "images").symlink_to(disk.seen)
        yield disk


@pytest.mark.parametrize(
    ("dump", "reason"),
    [
        (f'kill -STOP "$3"; {FILLS} || exit 1', "make room there"),
        (f'kill -STOP "$3"; {FILLS}; exit 0', "cannot be written: No space left on device"),
    ],
    ids=["during the dump", "as it is finished"],
)
async def test_the_job_runs_on_and_nothing_of_it_stays_on_the_disk(
    tmp_path: Path, command: subprocess.Popen[bytes], disk: SmallDisk, dump: str, reason: str
) -> None:
    slurm = Slurm()
    saving, _ = drains(tmp_path, criu(tmp_path, dump), slurm)
    before = shutil.disk_usage(disk.seen).free

    failed = await saving.save(ORDER)

    assert not failed.ok
    assert reason in failed.error
    assert str(tmp_path / "images") in failed.error
    assert not stands_still(command)
    assert slurm.requeued == []
    assert shutil.disk_usage(disk.seen).free == before
    criu(tmp_path, WELL)
    assert (await saving.save(ORDER)).ok
    assert slurm.requeued == [JOB]
