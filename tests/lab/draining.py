"""A job that counts, and drains of it by a real criu where there is one."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from lab import LocalLab
from slurm_interleave.node_agent.criu import Criu, CriuFailed
from tests.lab.commands import interleave

FETCHED = str(Path(__file__).parents[2] / "build/criu/criu")  # by `make criu`
CRIU = os.environ.get("INTERLEAVE_TEST_CRIU") or shutil.which("criu") or shutil.which(FETCHED) or ""
COUNTER = """
import fcntl, itertools, os, subprocess, sys, threading, time
from slurm_interleave.client import Interleaver

def locked():
    file = open(sys.argv[1] + ".lock", "w")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file

def start():
    children.append(subprocess.Popen(["sleep", "1000"]))
    started.set()
    children[0].wait()

turns = Interleaver.from_env()
lock = locked()
children, started = [], threading.Event()
threading.Thread(target=start, daemon=True).start()  # whose child the kernel lists apart from the first one's
started.wait()
seen = os.getenv("INTERLEAVE_RESUME", "no")
for number in itertools.count(1):
    with turns.turn("count"):
        print("counts", number, "resume", seen, flush=True)
    time.sleep(0.2)
    if os.path.exists(sys.argv[1]):
        assert children[0].poll() is None
        children[0].kill()
        try:
            locked()
        except BlockingIOError:
            sys.exit(7)
"""


def why_not() -> str:
    """Return why no process can be saved here."""
    if os.geteuid() != 0:
        return "criu needs root"
    if not CRIU:
        return "criu is not installed (make criu)"
    try:
        asyncio.run(Criu(CRIU, 10).check())
    except CriuFailed as error:
        return str(error)
    return cannot_save()


def cannot_save() -> str:
    """Return why criu brings back no process here; its own check does not know all that is in the way."""
    with tempfile.TemporaryDirectory() as folder:
        sleeper = subprocess.Popen(
            ["sleep", "1000"],
            cwd="/",
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if said := failure(folder, "dump", "--tree", str(sleeper.pid)):
            sleeper.kill()
        sleeper.wait()  # a dump ends it
        if not said and not (said := failure(folder, "restore", "--restore-detached")):
            os.kill(sleeper.pid, signal.SIGKILL)
    return said


def failure(folder: str, *arguments: str) -> str:
    command = [CRIU, *arguments, "--images-dir", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    said = (done.stdout + done.stderr).strip()[-200:]
    return f"criu {arguments[0]} of a sleep fails on this machine: {said}" if done.returncode else ""


NAME = f"drain-{os.getpid()}"  # its processes are found on the whole host
NOT_HERE = why_not()


def drain(lab: LocalLab) -> subprocess.CompletedProcess[str]:
    return interleave(lab, "drain", "local", "--keep-node")


def counts(lab: LocalLab, job: str) -> list[int]:
    """Return what it counts; of a line that is on its way nothing."""
    return [int(number) for number in re.findall(r"^counts (\d+) ", lab.output(job), re.MULTILINE)]
