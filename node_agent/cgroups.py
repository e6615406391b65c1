"""The directories of a process and of its Slurm job among the cgroups, as the kernel names them, never built.

Sources: the path differs by release, cgroup version and build: `job_<id>` below `slurm*/uid_*` (v1) or
`slurmstepd.scope` (v2, where Debian's multiple-slurmd puts the node's name in front); from 26.05 `s<SLUID>`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from slurm_interleave.client.core.errors import WrongState

_PROC = Path("/proc")
_SLUID = re.compile(r"s[0-9A-Z]{13}")


class Mount(NamedTuple):
    """Where a hierarchy is, which part of it that is, and its controllers; version 2 has none."""

    where: Path
    root: PurePosixPath
    controllers: frozenset[str]


def job_directories(pid: int, job: str, proc: Path = _PROC) -> list[Path]:
    """Return where *job* is among the cgroups, by its process *pid*; empty: nowhere, or another job's."""
    try:
        job_paths = {key: inner for key, path in paths(proc, pid).items() if (inner := _job_path(path, job))}
        return list(_directories(job_paths, proc))
    except OSError:
        return []


def entrance(pid: int, proc: Path = _PROC) -> list[Path]:
    """Return the files by which this process enters the cgroups of *pid*. Raises `WrongState`."""
    try:
        theirs, ours = paths(proc, pid), paths(proc, "self")
        others = {key: path for key, path in theirs.items() if ours.get(key) != path}
        files = [directory / "cgroup.procs" for directory in _directories(others, proc)]
    except OSError as error:
        raise WrongState(f"the cgroups of process {pid} cannot be read: {error}") from None
    missing = [file for file in files if not os.access(file, os.W_OK)]
    if missing:
        raise WrongState(f"{missing[0]} cannot be written, so process {pid} cannot be followed to its cgroup")
    return files


def members(directory: Path) -> set[int]:
    """Return the processes in *directory* and below it."""
    return {pid for path in directory.rglob("cgroup.procs") for pid in _pids(path)}


def _pids(path: Path) -> list[int]:
    try:
        return [int(pid) for pid in path.read_text().split()]
    except OSError:
        return []  # that step has just ended


def paths(proc: Path, process: int | str) -> dict[frozenset[str], PurePosixPath]:
    """Return the paths of *process* by controllers (cgroups(7)); version 2 has none. Raises `OSError`."""
    lines = _lines(proc / str(process) / "cgroup")
    split = (line.split(":", 2) for line in lines)
    return {frozenset(filter(None, names.split(","))): PurePosixPath(path) for _, names, path in split}


def _lines(path: Path) -> list[str]:
    """Return the lines of a file of /proc; of names, which are any bytes, the kernel escapes line feeds."""
    return os.fsdecode(path.read_bytes()).split("\n")[:-1]


def _directories(wanted: dict[frozenset[str], PurePosixPath], proc: Path) -> Iterator[Path]:
    """Yield where the paths *wanted* are mounted."""
    for mount in mounts(proc):
        path = wanted.get(mount.controllers)
        if path is not None and path.is_relative_to(mount.root):
            yield mount.where / path.relative_to(mount.root)


def _job_path(path: PurePosixPath, job: str) -> PurePosixPath | None:
    """Return the part of *path* down to the job; the outermost, since a job may name those inside it."""
    slurm = False
    for depth, name in enumerate(path.parts, start=1):
        if slurm and (name == f"job_{job}" or _SLUID.fullmatch(name)):
            return PurePosixPath(*path.parts[:depth])
        if slurm and re.fullmatch(r"job_\d+", name):
            return None
        slurm = slurm or "slurm" in name
    return None


def mounts(proc: Path = _PROC) -> Iterator[Mount]:
    """Yield each cgroup mount (proc_pid_mountinfo(5)). Raises `OSError`."""
    for line in _lines(proc / "self" / "mountinfo"):
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, where = fields.split(" ")[3:5]
        if kind == "cgroup2":
            yield Mount(Path(where), PurePosixPath(root), frozenset())
        elif kind == "cgroup":
            known = {"rw", "ro", "xattr", "clone_children", "noprefix"}
            named = {option for option in options.split(",") if option not in known}
            yield Mount(Path(where), PurePosixPath(root), frozenset(named))
