"""What an orchestrator remembers, as it sees it: `Store`'s promises without SQL, or `Store` itself."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slurm_interleave.client.core.errors import Replaced
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import Locked, RowId, RowType
from tests.simulation.loop import Process

_PREFIX = "interleave-simulation"
Changes = Mapping[RowId, rows.Row | None]


def scratch() -> Path:
    """Return a new folder, in memory where that can be; what simulations have left that were killed goes."""
    memory = Path("/dev/shm")
    base = memory if memory.is_dir() else Path(tempfile.gettempdir())
    for left in base.glob(f"{_PREFIX}-*-*"):
        pid = left.name.removeprefix(f"{_PREFIX}-").partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{os.getpid()}-", dir=base))


class Disk:
    """The database: outlives every orchestrator."""

    def __init__(self) -> None:
        self.generation = self.epoch = 0
        self.rows: dict[RowId, rows.Row] = {}
        self.yielded: dict[rows.Key, int] = {}

    def open(self, *, embedded: bool) -> MemoryStore:
        """Take over, as `Store` does."""
        self.generation += 1
        return MemoryStore(self, embedded=embedded)


class MemoryStore:
    """`Store` on a `Disk`: all or nothing, and the newest one alone may write."""

    def __init__(self, disk: Disk, *, embedded: bool) -> None:
        self._disk, self.embedded = disk, embedded
        self.generation, self.epoch = disk.generation, disk.epoch

    def all(self, kind: type[RowType]) -> list[RowType]:
        return [row for row in self._disk.rows.values() if isinstance(row, kind)]

    def last_yields(self) -> dict[rows.Key, int]:
        live = {rows.Key(member.job_id, member.group) for member in self.all(rows.Member)}
        return {key: epoch for key, epoch in self._disk.yielded.items() if key in live}

    def close(self) -> None:
        """Do nothing: the disk stays."""

    def record(self, changes: Changes, epoch: int, *, may_wait: bool) -> None:
        disk, _ = self._disk, may_wait  # nobody else writes; see `Watched`
        if (disk.generation, disk.epoch) != (self.generation, self.epoch):
            raise Replaced("another orchestrator has started on this database; this one stops")
        for number, row in changes.items():
            if isinstance(row, rows.Slice):
                if row.state is SliceState.YIELDED:
                    disk.yielded[rows.Key(row.job_id, row.group)] = row.epoch
            elif row is not None:
                disk.rows[number] = row
            else:
                disk.rows.pop(number, None)
        self.epoch = disk.epoch = epoch


class Watched:
    """A store between its orchestrator and the world, which may kill the one before or after a commit."""

    def __init__(
        self,
        store: Any,
        process: Process,
        committed: Callable[[Changes, int], None],
        crash: Callable[[], str],
        locked: Callable[[], bool],
    ) -> None:
        self._store, self._process = store, process
        self._committed, self._crash, self._locked = committed, crash, locked
        self.generation, self.embedded = store.generation, store.embedded
        self.all, self.last_yields, self.close = store.all, store.last_yields, store.close

    @property
    def epoch(self) -> int:
        return int(self._store.epoch)

    def record(self, changes: Changes, epoch: int, *, may_wait: bool = True) -> None:
        if not self._process.alive:
            return
        if not may_wait and self._locked():
            raise Locked
        crash = self._crash()
        if crash == "before":
            self._process.kill()
            return
        self._store.record(changes, epoch, may_wait=may_wait)
        self._committed(changes, epoch)
        if crash == "after":
            self._process.kill()
