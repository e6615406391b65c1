"""Host memory of the node and of its jobs, as the kernel tells it.

A job's limits are found from its processes, among the cgroups of both versions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from slurm_interleave.node_agent import cgroups
from slurm_interleave.node_agent.admission import Disk, Limit, Node
from slurm_interleave.node_agent.cgroups import Mount

_PROC = Path("/proc")
_UNLIMITED = 1 << 60  # v1 has a number of that size where there is no limit


def of_node(proc: Path = _PROC) -> Node:
    """Return the node's memory. Raises `OSError` where it cannot be read."""
    words = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    sizes = {name.rstrip(":"): int(size) * 1024 for name, size, *_ in words}
    return Node(sizes["MemTotal"], sizes["MemAvailable"])


def of_disk(folder: Path) -> Disk:
    """Return the disk that *folder* is on. Raises `OSError` where it cannot be seen."""
    about = os.statvfs(folder)
    return Disk(os.fspath(folder), about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize)


def of_job(pids: Iterable[int], proc: Path = _PROC) -> list[Limit]:
    """Return the memory limits that all of *pids* are below: the job's, its user's, the node's for Slurm.

    A limit of one step does not count where the job has several. Empty: there is none that can be seen.
    """
    mounts = [each for each in cgroups.mounts(proc) if not each.controllers or "memory" in each.controllers]
    common: list[Path] | None = None
    for pid in pids:
        mine = _directories(pid, mounts, proc)
        if mine:
            common = mine if common is None else [path for path in common if path in mine]
    return [limit for path in common or [] if (limit := _limit(path)) is not None]


def _directories(pid: int, mounts: list[Mount], proc: Path) -> list[Path]:
    """Return the directories of all groups that process *pid* is in, from its own up."""
    try:
        paths = cgroups.paths(proc, pid)
    except OSError:
        return []  # it has ended
    found: list[Path] = []
    for mount in mounts:
        path = paths.get(mount.controllers)
        if path is not None and ".." not in str(path) and path.is_relative_to(mount.root):
            found += _upwards(mount, path)
    return found


def _upwards(mount: Mount, path: PurePosixPath) -> Iterator[Path]:
    inner = path.relative_to(mount.root)
    for part in (inner, *inner.parents):
        yield mount.where / part


def _limit(path: Path) -> Limit | None:
    names = ("memory.max", "memory.current") if (path / "memory.max").exists() else _V1
    try:
        limit, used = ((path / name).read_text().strip() for name in names)
        words = (line.split() for line in (path / "memory.stat").read_text().splitlines())
    except OSError:
        return None  # the root has no limit; others may be gone by now
    if limit == "max" or int(limit) >= _UNLIMITED:
        return None
    stat = {name: int(size) for name, size in words}
    prefix = "total_" if names is _V1 else ""
    cache = sum(stat.get(f"{prefix}{name}", 0) for name in ("inactive_file", "active_file"))
    return Limit(os.fspath(path), int(limit), int(used), cache + stat.get("slab_reclaimable", 0))


_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
