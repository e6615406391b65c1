"""A limit on the processes and threads of a process, as TasksMax= of systemd sets one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOTS = [Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")]  # of cgroup v1, and of v2


class PidLimit:
    """A cgroup of one process, in which no other begins while it is `full`."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder = folder
        (folder / "cgroup.procs").write_text(str(pid))

    def full(self) -> None:
        (self._folder / "pids.max").write_text((self._folder / "pids.current").read_text())

    def off(self) -> None:
        (self._folder / "pids.max").write_text("max")


@contextlib.contextmanager
def pid_limit(pid: int) -> Iterator[PidLimit]:
    """Put *pid* into a cgroup of its own; skips the test where that cannot be."""
    for root in _ROOTS:
        folder = root / f"interleave-test-{os.getpid()}-{pid}"
        with contextlib.suppress(OSError):
            folder.mkdir()
            if (folder / "pids.max").exists():
                break
            folder.rmdir()
    else:
        pytest.skip("no cgroup with a pid limit can be made here")
    try:
        yield PidLimit(folder, pid)
    finally:
        (folder / "pids.max").write_text("max")
        for rest in (folder / "cgroup.procs").read_text().split():
            (folder.parent / "cgroup.procs").write_text(rest)
        folder.rmdir()
