"""Writes what decisions change, and has them carried out when they are written."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.journal import journal
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import Locked, RowId, Store, row_id

# So many submissions within so many seconds are a load, in which a moment's wait makes batches larger.
_MANY, _WITHIN_S = 16, 0.01
_GATHER_S = 0.003
# Where commits take longer than this, by a mean of the last ones, a thread waits for them.
_SLOW_S, _OF_LAST, _COUNTED_S = 0.001, 8, 0.01
# The log comes so much later, when those who wait have been served: sooner, it would fall into the middle of
# a handover, of whose steps each line costs as much as one.
_LOG_S = 0.02
# Most commands are these, of which nothing is left to do when they are written.
_WRITTEN = (cmd.Put, cmd.Advance, cmd.Yielded, cmd.Note)


@dataclass
class _Batch:
    """The commands of one event, and who waits until they are remembered."""

    commands: Sequence[cmd.Command]
    recorded: asyncio.Future[Sequence[cmd.Command]]


class Recorder:
    """The one writer of a store; lives in one event loop.

    All that has piled up is written in one transaction. A store that is embedded is written to at once where
    nothing else goes on, since to wait for a turn of the loop, or for a thread, takes as long as the write.
    Where the disk is slow, or another program is writing to its file, a thread waits, and the loop goes on.
    """

    def __init__(self, store: Store, perform: Callable[[cmd.Command], None]) -> None:
        """*perform* carries a command out."""
        self._store = store
        self._perform = perform
        self._thread = ThreadPoolExecutor(1, "interleave-sql")
        self._batches: list[_Batch] = []
        self._work = asyncio.Event()
        self._idle = False  # `run` waits for work
        self._recent = deque([float("-inf")] * _MANY, _MANY)  # when the last submissions came
        self._busy = False
        self._commit_s = 0.0  # mean of the last ones
        self._broken: Exception | None = None
        self._unlogged: list[cmd.Command] = []
        self._logging: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Write until cancelled. Raises what `stop` gives, `Replaced` and `DatabaseFailed`."""
        try:
            while True:
                self._idle = True
                await self._work.wait()
                self._idle = False
                self._work.clear()
                if self._broken is not None:
                    raise self._broken
                batches, self._batches = self._batches, []
                await self._write(batches)
                self._carry_out(batches)
                if self._busy:
                    await asyncio.sleep(_GATHER_S)
        finally:
            self._idle = False

    def submit(self, commands: Sequence[cmd.Command]) -> asyncio.Future[Sequence[cmd.Command]]:
        """Record *commands* and carry them out in their turn; the future ends then."""
        loop = asyncio.get_running_loop()
        batch, now = _Batch(commands, loop.create_future()), loop.time()
        self._busy = now - self._recent[0] < _WITHIN_S
        self._recent.append(now)
        if self._at_once and self._idle and not self._busy and not self._work.is_set():
            self._write_now(batch)
        else:
            self._batches.append(batch)
            self._work.set()
        return batch.recorded

    def stop(self, error: Exception) -> None:
        """Let `run` raise *error*; nothing more is written."""
        self._broken = error
        self._work.set()

    def close(self) -> None:
        """End the thread; what was not written yet was not answered either."""
        self._thread.shutdown(wait=True)
        self._log()

    def _write_now(self, batch: _Batch) -> None:
        try:
            change = _change([batch], self._store.epoch)
            if change is not None:
                self._record(*change, may_wait=False)
        except Locked:
            self._batches.append(batch)
            self._work.set()
        except Exception as error:  # noqa: BLE001 - whoever submits is not to blame: `run` raises it
            self.stop(error)
        else:
            self._carry_out([batch])

    async def _write(self, batches: Sequence[_Batch]) -> None:
        change = _change(batches, self._store.epoch)
        if change is None:
            return
        if self._at_once:
            with contextlib.suppress(Locked):
                self._record(*change, may_wait=False)
                return
        await asyncio.get_running_loop().run_in_executor(self._thread, self._record, *change)

    @property
    def _at_once(self) -> bool:
        return self._store.embedded and self._commit_s < _SLOW_S

    def _record(self, changes: dict[RowId, rows.Row | None], epoch: int, *, may_wait: bool = True) -> None:
        began = time.monotonic()
        self._store.record(changes, epoch, may_wait=may_wait)
        took = min(time.monotonic() - began, _COUNTED_S)
        self._commit_s += (took - self._commit_s) / _OF_LAST

    def _carry_out(self, batches: Sequence[_Batch]) -> None:
        for batch in batches:
            for command in batch.commands:
                if not isinstance(command, _WRITTEN):
                    self._perform(command)
            if not batch.recorded.done():  # else whoever told it is gone
                batch.recorded.set_result(batch.commands)
            self._unlogged += batch.commands
        if not self._logging:
            self._logging = asyncio.get_running_loop().call_later(_LOG_S, self._log)

    def _log(self) -> None:
        self._logging = None
        commands, self._unlogged = self._unlogged, []
        for command in commands:
            journal(command)


def _change(batches: Iterable[_Batch], epoch: int) -> tuple[dict[RowId, rows.Row | None], int] | None:
    """Return what is to be written: for each row its last state, and the last epoch, now *epoch*."""
    changes: dict[RowId, rows.Row | None] = {}
    needed = False
    for command in (command for batch in batches for command in batch.commands):
        match command:
            case cmd.Put():
                changes[row_id(command.row)] = command.row
            case cmd.Drop():
                changes[row_id(command.row)] = None
            case cmd.Advance():
                epoch, needed = command.after, True
            case cmd.Grant() | cmd.Yielded():
                # An answer needs the fence although it changes nothing: a later orchestrator may know better.
                needed = True
    return (changes, epoch) if changes or needed else None
