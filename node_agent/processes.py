"""The processes of a job, by its id in their environment, and the one process that a job ends with."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slurm_interleave.client.core.errors import BadArgument

_START_TIME = 19  # of the fields of /proc/PID/stat behind the name: field 22 of proc(5)


@dataclass(frozen=True)
class Process:
    """One process: its id may be used again, together with *started* (clock ticks since boot) it is not."""

    pid: int
    started: int
    uid: int = 0
    gid: int = 0


NO_PROCESS = Process(0, 0)


def of_jobs(jobs: Iterable[str], proc: Path = Path("/proc")) -> dict[str, list[int]]:
    """Return the process ids of each of *jobs*. The agent sees all only if it is root.

    Raises `OSError` where it cannot look, which does not mean that there are none.
    """
    found: dict[str, list[int]] = {job: [] for job in jobs}
    for folder in proc.iterdir() if found else ():
        if folder.name.isdigit() and (job := job_of(int(folder.name), proc)) in found:
            found[job].append(int(folder.name))
    return found


def with_words(*words: str, proc: Path = Path("/proc")) -> list[int]:
    """Return the processes on whose command lines *words* follow each other."""
    wanted, found = "\0".join(["", *words, ""]).encode(), []
    for folder in proc.iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and wanted in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def job_of(pid: int, proc: Path = Path("/proc")) -> str:
    """Return the id of the job that a process was started in; "" for none. Raises as `variables`."""
    return variables(pid, proc).get("INTERLEAVE_JOB_ID", "")


def variables(pid: int, proc: Path = Path("/proc")) -> dict[str, str]:
    """Return the environment that a process was started with; of equal names the first, as getenv(3) does.

    Empty if it has ended, or may not be looked at. Raises `OSError` where none can be: too many open files.
    """
    try:
        lines = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return {}
    pairs = (line.decode(errors="replace").partition("=") for line in reversed(lines) if b"=" in line)
    return {name: value for name, _, value in pairs}


def open_process(pid: int) -> tuple[Process, int]:
    """Return process *pid* and a descriptor that becomes readable at its end. Raises `BadArgument`."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, OverflowError) as error:
        raise BadArgument(f"process {pid} cannot be watched: {error}") from None
    try:
        return look(pid), descriptor
    except (OSError, ValueError, IndexError) as error:
        os.close(descriptor)
        raise BadArgument(f"process {pid} has ended: {error}") from None


def look(pid: int, proc: Path = Path("/proc")) -> Process:
    """Return process *pid*. Raises `OSError`, `ValueError` and `IndexError` if it has ended."""
    fields = stat_fields(pid, proc)
    text = (proc / str(pid) / "status").read_text(errors="replace")
    lines = (line.partition(":")[::2] for line in text.splitlines())
    status = {key: value.split() for key, value in lines}
    # The real ones. The owner of the files is root's for a process that may not be traced.
    return Process(pid, int(fields[_START_TIME]), int(status["Uid"][0]), int(status["Gid"][0]))


def stat_fields(pid: int, proc: Path = Path("/proc")) -> list[str]:
    """Return the fields of proc_pid_stat(5) behind the name: state, parent, ... Raises `OSError`."""
    # A process may name itself with any bytes.
    return (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def parent(pid: int, proc: Path = Path("/proc")) -> int:
    """Return the process that started *pid*, or the one that took its place; 0 for one that has ended."""
    try:
        return int(stat_fields(pid, proc)[1])
    except (OSError, IndexError):
        return 0


def uid(pid: int, proc: Path = Path("/proc")) -> int:
    """Return the real user of *pid*; -1 for one that has ended."""
    try:
        return look(pid, proc).uid
    except (OSError, ValueError, IndexError, KeyError):
        return -1
