"""A disk of a MiB or so that only the processes see that are started on it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_MOUNT = 'mount -t tmpfs -o "size=$1" none "$2" && echo mounted && exec sleep infinity'
_BALLAST = "ballast"


class SmallDisk:
    """A tmpfs in a mount namespace of its own, mounted at *path*."""

    def __init__(self, path: Path, kib: int) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        argv = ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", f"{kib}k", str(path)]
        self._holder = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if not self._holder.stdout.readline():
            reason = self._holder.stderr.read().decode().strip()
            self.close()
            pytest.skip(f"no small disk can be mounted here: {reason}")

    @property
    def enter(self) -> list[str]:
        """What a command that is to see the disk begins with."""
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--"]

    @property
    def ballast(self) -> Path:
        """The file that `fill` makes, as those see it that are on the disk."""
        return self.path / _BALLAST

    @property
    def seen(self) -> Path:
        """Where this process sees what is on it."""
        return Path(f"/proc/{self._holder.pid}/root{self.path}")

    def fill(self, *, but: int = 0) -> None:
        """Take all its room, but for so many bytes."""
        left = bytes(4096)
        with (self.seen / _BALLAST).open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while shutil.disk_usage(self.seen).free > but:
                ballast.write(left)

    def empty(self) -> None:
        """Give it all back that `fill` took."""
        (self.seen / _BALLAST).unlink(missing_ok=True)

    def remount(self, how: str) -> None:
        """Have it read-only ("ro"), or not ("rw")."""
        subprocess.run([*self.enter, "mount", "-o", f"remount,{how}", str(self.path)], check=True)

    def close(self) -> None:
        """Unmount it: the last process that sees it ends."""
        self._holder.kill()
        self._holder.communicate()


@contextlib.contextmanager
def small_disk(path: Path, kib: int = 1024) -> Iterator[SmallDisk]:
    """Give a disk of so many KiB. Skips the test where none can be mounted."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("nsenter"):
        pytest.skip("to mount a small disk takes root, unshare and nsenter")
    disk = SmallDisk(path, kib)
    try:
        yield disk
    finally:
        disk.close()
