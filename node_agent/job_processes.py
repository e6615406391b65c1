"""All processes of a job on this node, and whether they live."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from dataclasses import dataclass
from pathlib import Path

from slurm_interleave.node_agent import cgroups, processes
from slurm_interleave.node_agent.processes import Process

_PROC = Path("/proc")
_SCONTROL_S = 2.0  # it asks this node alone


class Handle:
    """Holds on to a process to see its end, even where its id is used again."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._fd: int | None = None
        with contextlib.suppress(OSError):  # it has ended, or the kernel is older than 5.3
            self._fd = os.pidfd_open(process.pid)
        # Only now is it sure that the descriptor is of this process.
        self._ended = not is_alive(process)

    def ended(self) -> bool:
        """Return whether it has ended."""
        if not self._ended:
            if self._fd is None:
                self._ended = not is_alive(self.process)
            else:
                poll = select.poll()
                poll.register(self._fd, select.POLLIN)
                self._ended = bool(poll.poll(0))
        return self._ended

    def close(self) -> None:
        """Let go; again is fine."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


@dataclass(frozen=True)
class Owner:
    """Whose a job's processes are; *pid* is the one that a job without Slurm was registered with, or 0."""

    uid: int
    pid: int = 0


def of_job(job: str, owner: Owner, proc: Path = _PROC) -> list[Process]:
    """Return all processes of *job* that run as its user: those in its cgroup, or those that Slurm lists.

    Of a job without Slurm: those that descend from the one that it was registered with. Raises `OSError`
    where it cannot look.
    """
    pids = set(processes.of_jobs([job], proc)[job])
    if owner.pid:
        pids |= _line_of(owner.pid, proc)
    if not pids and job.isdigit():
        pids = listpids(job)
    directories = {path for pid in pids for path in cgroups.job_directories(pid, job, proc)}
    for directory in directories:
        pids |= cgroups.members(directory)
    if not directories and not owner.pid and job.isdigit():
        pids |= listpids(job)
    found = (identify(pid, proc) for pid in sorted(pids))
    return [process for process in found if process is not None and process.uid == owner.uid]


def _line_of(pid: int, proc: Path) -> set[int]:
    """Return *pid* and all that descend from it."""
    children: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            child = int(folder.name)
            children.setdefault(int(processes.stat_fields(child, proc)[1]), []).append(child)
    found, left = set(), [pid]
    while left:
        found.add(left[-1])
        left.extend(children.get(left.pop(), ()))
    return found


def identify(pid: int, proc: Path = _PROC) -> Process | None:
    """Return the process with this id, None if there is none; one that has ended does not count."""
    try:
        if processes.stat_fields(pid, proc)[0] in "ZX":
            return None
        return processes.look(pid, proc)
    except (OSError, ValueError, IndexError, KeyError):
        return None


def is_alive(process: Process) -> bool:
    """Return whether this very process runs."""
    now = identify(process.pid)
    return now is not None and now.started == process.started


def listpids(job: str) -> set[int]:
    """Ask Slurm for the processes of *job* on this node; nothing where it does not answer."""
    argv = ["scontrol", "listpids", job]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SCONTROL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return set()
    words = (line.split() for line in done.stdout.splitlines())
    return {int(row[0]) for row in words if len(row) > 1 and row[0].isdigit() and row[1] == job}
