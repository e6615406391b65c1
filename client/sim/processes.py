"""Which process is alive: known by its id and its start time, since ids are used again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_START_TIME = 19  # index of starttime (field 22 of proc_pid_stat(5)) counted from the field after "(comm)"


class Process(NamedTuple):
    """One process of this host: id, and start time in clock ticks since boot."""

    pid: int
    born: int


def this_process() -> Process:
    """Return the process that runs this code."""
    pid = os.getpid()
    return Process(pid, _born(pid) or 0)


def process(pid: int) -> Process | None:
    """Return the process that has the id *pid* now; None if there is none, or a zombie."""
    born = _born(pid)
    return None if born in (None, -1) else Process(pid, born or 0)


def is_alive(process: Process) -> bool:
    """Say whether *process* runs still; a zombie does not."""
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's process
    born = _born(process.pid)
    return born is None or born == process.born  # None: hidden by hidepid, so only its id speaks


def _born(pid: int) -> int | None:
    try:
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if words[0] in "ZX":
        return -1
    return int(words[_START_TIME])
