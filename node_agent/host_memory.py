"""Host memory of the node and of its jobs, as the kernel tells it.

A job's limits are found from its processes (proc_pid_cgroup(5)): a path of a cgroup is never built, since it
differs by release of Slurm, version of cgroups and site. Both versions are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from slurm_interleave.node_agent.admission import Limit, Node

_PROC = Path("/proc")
_UNLIMITED = 1 << 60  # v1 has a number of that size where there is no limit


@dataclass(frozen=True)
class _Mount:
    """Where a hierarchy with the memory controller is, and which part of it that is."""

    where: Path
    root: PurePosixPath
    v2: bool


def of_node(proc: Path = _PROC) -> Node:
    """Return the node's memory. Raises `OSError` where it cannot be read."""
    words = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    sizes = {name.rstrip(":"): int(size) * 1024 for name, size, *_ in words}
    return Node(sizes["MemTotal"], sizes["MemAvailable"])


def of_job(pids: Iterable[int], proc: Path = _PROC) -> list[Limit]:
    """Return the memory limits that all of *pids* are below: the job's, its user's, the node's for Slurm.

    A limit of one step does not count where the job has several. Empty: there is none that can be seen.
    """
    mounts = _mounts(proc)
    common: list[Path] | None = None
    for pid in pids:
        mine = _directories(pid, mounts, proc)
        if mine:
            common = mine if common is None else [path for path in common if path in mine]
    return [limit for path in common or [] if (limit := _limit(path)) is not None]


def _mounts(proc: Path) -> list[_Mount]:
    """Return the hierarchies that have the memory controller; see proc_pid_mountinfo(5)."""
    found = []
    for line in (proc / "self" / "mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, where = fields.split(" ")[3:5]
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            found.append(_Mount(Path(where), PurePosixPath(root), kind == "cgroup2"))
    return found


def _directories(pid: int, mounts: list[_Mount], proc: Path) -> list[Path]:
    """Return the directories of all groups that process *pid* is in, from its own up."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return []  # it has ended
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for mount in mounts:
            mine = not controllers if mount.v2 else "memory" in controllers.split(",")
            if mine and ".." not in path and PurePosixPath(path).is_relative_to(mount.root):
                found += _upwards(mount, PurePosixPath(path))
    return found


def _upwards(mount: _Mount, path: PurePosixPath) -> Iterator[Path]:
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
