"""Where the ranks of a job may write saved state to disk that does not fit in host memory.

A folder is there for one command. What a rank makes in it has no name and ends with its process, so nothing
is left to be removed, however job and agent end. What else a user makes in it, as much as he likes, is
removed in a thread.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from slurm_interleave.client.core.removal import remove_tree
from slurm_interleave.node_agent.backends.protocol import in_thread

_NAME = ".ranks-"


class RankSpill:
    """Folders of jobs in [agent] spill_dir, where that is set."""

    def __init__(self, root: Path) -> None:
        """*root* is the folder spill_dir, which users pass through but do not read."""
        self._root = root

    @contextlib.asynccontextmanager
    async def folder(self, job: str, uid: int, gid: int) -> AsyncIterator[Path]:
        """Give a folder in which the job's user alone may write. Raises `OSError`."""
        path = self._root / f"{_NAME}{job}"
        self._root.chmod(self._root.stat().st_mode | 0o011)
        await in_thread(lambda: remove_tree(path))  # of an agent that was killed
        path.mkdir(mode=0o700)
        try:
            os.chown(path, uid, gid)
            yield path
        finally:
            await in_thread(lambda: remove_tree(path))

    async def sweep(self) -> None:
        """Remove the folders that an agent left which was killed."""
        for path in self._root.glob(f"{_NAME}*"):
            await in_thread(lambda path=path: remove_tree(path))  # type: ignore[misc]
