"""Where the ranks of a job may write saved state to disk that does not fit in host memory.

A folder is there for one command. What a rank makes in it has no name and ends with its process, so nothing
is left to be removed, however job and agent end.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = ".ranks-"


class RankSpill:
    """Folders of jobs in [agent] spill_dir, where that is set."""

    def __init__(self, root: Path) -> None:
        """*root* is the folder spill_dir, which users pass through but do not read."""
        self._root = root

    @contextmanager
    def folder(self, job: str, uid: int, gid: int) -> Iterator[Path]:
        """Give a folder in which the job's user alone may write. Raises `OSError`."""
        path = self._root / f"{_NAME}{job}"
        self._root.chmod(self._root.stat().st_mode | 0o011)
        shutil.rmtree(path, ignore_errors=True)  # of an agent that was killed
        path.mkdir(mode=0o700)
        try:
            os.chown(path, uid, gid)
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def sweep(self) -> None:
        """Remove the folders that an agent left which was killed."""
        for path in self._root.glob(f"{_NAME}*"):
            shutil.rmtree(path, ignore_errors=True)
