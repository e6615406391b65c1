"""Where a process is accounted for, and how another one comes there."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_interleave.client.core.errors import WrongState

_MOUNT = Path("/sys/fs/cgroup")


def entrance(pid: int, mount: Path = _MOUNT, proc: Path = Path("/proc")) -> list[Path]:
    """Return the files by which another process enters the cgroups of *pid*. Raises `WrongState`.

    The paths are those that the kernel names (cgroups(7)), never made up.
    """
    theirs, ours = _cgroups(proc / str(pid)), _cgroups(proc / "self")
    files = [
        _folder(mount, controllers) / path.lstrip("/") / "cgroup.procs"
        for controllers, path in theirs.items()
        if ours.get(controllers) != path
    ]
    missing = [file for file in files if not os.access(file, os.W_OK)]
    if missing:
        raise WrongState(f"{missing[0]} cannot be written, so process {pid} cannot be followed to its cgroup")
    return files


def _cgroups(process: Path) -> dict[str, str]:
    """Return paths by controllers; version 2 has none."""
    try:
        lines = (process / "cgroup").read_text().splitlines()
    except OSError as error:
        raise WrongState(f"{process}/cgroup cannot be read: {error.strerror}") from None
    return {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}


def _folder(mount: Path, controllers: str) -> Path:
    if not controllers:
        unified = mount / "unified"
        return unified if unified.exists() else mount
    return mount / controllers.removeprefix("name=")
