"""A job that counts, and drains of it by a real criu where there is one."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess

from lab import LocalLab
from slurm_interleave.node_agent.criu import Criu, CriuFailed
from tests.lab.commands import interleave

CRIU = os.environ.get("INTERLEAVE_TEST_CRIU") or shutil.which("criu") or ""
COUNTER = """
import itertools, os, subprocess, sys, time
from slurm_interleave.client import Interleaver

turns = Interleaver.from_env()
child = subprocess.Popen(["sleep", "1000"])
seen = os.getenv("INTERLEAVE_RESUME", "no")
for number in itertools.count(1):
    with turns.turn("count"):
        print("counts", number, "resume", seen, flush=True)
    time.sleep(0.2)
    if os.path.exists(sys.argv[1]):
        assert child.poll() is None
        child.kill()
        sys.exit(7)
"""


def why_not() -> str:
    """Return why no process can be saved here."""
    if os.geteuid() != 0:
        return "criu needs root"
    if not CRIU:
        return "criu is not installed (deploy/lab/install-criu.sh DIR, then INTERLEAVE_TEST_CRIU=DIR/criu)"
    try:
        asyncio.run(Criu(CRIU, 10).check())
    except CriuFailed as error:
        return str(error)
    return ""


NAME = f"drain-{os.getpid()}"  # its processes are found on the whole host
NOT_HERE = why_not()


def drain(lab: LocalLab) -> subprocess.CompletedProcess[str]:
    return interleave(lab, "drain", "local", "--keep-node")


def counts(lab: LocalLab, job: str) -> list[int]:
    """Return what it counts; of a line that is on its way nothing."""
    return [int(number) for number in re.findall(r"^counts (\d+) ", lab.output(job), re.MULTILINE)]
