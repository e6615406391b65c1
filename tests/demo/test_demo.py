"""The demo as a user runs it, with few steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "options",
    [pytest.param([], marks=pytest.mark.slurm, id="slurm"), pytest.param(["--no-slurm"], id="local")],
)
def test_the_demo_ends_with_figures_proof_and_picture(options: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "run.html"
    argv = [sys.executable, "-m", "demo", "--steps", "3", "--timeline", str(picture), *options]
    env = {**os.environ, "PYTHONPATH": "deploy:examples"}

    done = subprocess.run(argv, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    duty = re.search(r"device duty cycle\D+(\d+)%\D+(\d+)%", done.stdout)
    assert duty is not None
    assert all(10 < int(share) <= 100 for share in duty.groups())
    assert done.stdout.count(" yes ") == 2
    assert "YIELDED" in done.stdout
    assert "vegaEmbed" in picture.read_text()
