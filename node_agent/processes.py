"""The processes of a job, by its id in their environment, and the one process that a job ends with."""

from __future__ import annotations

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
    wanted = {f"INTERLEAVE_JOB_ID={job}".encode(): job for job in jobs}
    found: dict[str, list[int]] = {job: [] for job in wanted.values()}
    for folder in proc.iterdir() if wanted else ():
        if folder.name.isdigit():
            job = _job_of(folder, wanted)
            if job is not None:
                found[job].append(int(folder.name))
    return found


def is_of_job(pid: int, job: str, proc: Path = Path("/proc")) -> bool:
    """Tell whether a process was started with the id of *job* in its environment."""
    return _job_of(proc / str(pid), {f"INTERLEAVE_JOB_ID={job}".encode(): job}) == job


def _job_of(folder: Path, wanted: dict[bytes, str]) -> str | None:
    try:
        variables = (folder / "environ").read_bytes().split(b"\0")
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return None  # it has ended, or is another user's
    return next((wanted[variable] for variable in variables if variable in wanted), None)


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
    lines = (line.partition(":")[::2] for line in (proc / str(pid) / "status").read_text().splitlines())
    status = {key: value.split() for key, value in lines}
    # The real ones. The owner of the files is root's for a process that may not be traced.
    return Process(pid, int(fields[_START_TIME]), int(status["Uid"][0]), int(status["Gid"][0]))


def stat_fields(pid: int, proc: Path = Path("/proc")) -> list[str]:
    """Return the fields of proc_pid_stat(5) behind the name: state, parent, ... Raises `OSError`."""
    return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
