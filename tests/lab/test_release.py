"""deploy/lab/release.sh, as far as it can be tested without a Debian of another release."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from lab.scratch import REPOSITORY

SCRIPT = REPOSITORY / "deploy" / "lab" / "release.sh"


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed, to enter another Debian")
def test_a_second_run_in_a_release_waits_for_the_first_and_changes_nothing_before(tmp_path: Path) -> None:
    root = tmp_path / "trixie"
    root.mkdir()
    env = {**os.environ, "INTERLEAVE_RELEASES": str(tmp_path)}
    with (tmp_path / "trixie.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen(
            [SCRIPT, "trixie", "true"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == f"waiting for another run in {root}\n"
            assert not list(root.iterdir())
            fcntl.flock(lock, fcntl.LOCK_UN)

            assert second.wait(60) != 0  # there is no Debian in that folder

    assert (root / "srv" / "slurm-interleave" / "Makefile").exists()
