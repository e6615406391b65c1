"""The programs of users, told of a lab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lab import LocalLab

PROGRAM = Path(sys.executable).with_name("interleave")


def interleave(lab: LocalLab, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [PROGRAM, *arguments, "--config", lab.config]
    return subprocess.run(command, env=lab.env, capture_output=True, text=True, check=False)
