"""Carries out what the core decides: first remembered in SQL, then done.

Events are decided at once, in order; what they changed is written by one thread, all that has piled up in
one transaction; only then are answers given and agents told. So a crash loses nothing that anybody saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from slurm_interleave.client.core.errors import InterleaveError, NotInTime
from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.core.state import Remembered
from slurm_interleave.orchestrator.journal import journal
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import RowId, SliceFilter, Store, row_id


class Agents(Protocol):
    """Whom operations are sent to."""

    def operate(self, operation: cmd.Operate) -> None:
        """Send *operation* if the agent is connected; it is sent again when it comes back."""


@dataclass
class _Batch:
    """The commands of one event, and who waits until they are remembered."""

    commands: Sequence[cmd.Command]
    recorded: asyncio.Future[Sequence[cmd.Command]]


News = cmd.Grant | cmd.Refuse | cmd.Place
_ANSWERS = (cmd.Grant, cmd.Yielded)


class Arbiter:
    """Owns the core and its memory; lives in one event loop."""

    def __init__(
        self, store: Store, agents: Agents, rules: Rules, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._agents = agents
        self._clock = clock
        self._writer = ThreadPoolExecutor(1, "interleave-sql")
        self._batches: list[_Batch] = []
        self._work = asyncio.Event()
        self._callers: dict[ev.CallId, asyncio.Queue[News]] = {}
        self._listeners: dict[rows.Key, set[asyncio.Queue[cmd.Notice]]] = {}
        self._watchers: set[asyncio.Queue[str]] = set()
        self._numbers = itertools.count(1)
        self._broken: Exception | None = None
        self.core = Core(_remembered(store), store.generation, rules)
        self._submit(self.core.start(clock()))

    async def run(self) -> None:
        """Write and carry out, until cancelled. Raises `Replaced` if another orchestrator took over."""
        loop = asyncio.get_running_loop()
        while True:
            await self._work.wait()
            self._work.clear()
            if self._broken is not None:
                raise self._broken
            batches, self._batches = self._batches, []
            commands = [command for batch in batches for command in batch.commands]
            changes, epoch = _changes(commands)
            # An answer needs the fence although it changes nothing: a later orchestrator may know better.
            if changes or epoch is not None or any(isinstance(c, _ANSWERS) for c in commands):
                newest = self._store.epoch if epoch is None else epoch
                await loop.run_in_executor(self._writer, self._store.record, changes, newest)
            for batch in batches:
                for command in batch.commands:
                    self._perform(command)
                if not batch.recorded.done():  # else whoever told it is gone
                    batch.recorded.set_result(batch.commands)

    async def tell(self, event: ev.Event) -> Sequence[cmd.Command]:
        """Decide on *event*; return its commands when they are recorded and done."""
        return await self._submit(self._decide(event))

    def post(self, event: ev.Event) -> None:
        """Decide on *event* without waiting for the record."""
        self._submit(self._decide(event))

    async def remember(self, changes: Sequence[cmd.Put | cmd.Drop]) -> None:
        """Record rows that no decision depends on, such as the book of placement."""
        await self._submit(changes)

    async def acquire(
        self,
        job_id: str,
        groups: Sequence[str],
        phase: str,
        within_s: float | None = None,
        *,
        independent: bool = False,
    ) -> AsyncGenerator[cmd.Place | cmd.Grant, None]:
        """Wait until the job holds the devices of *groups*: yields places in the queue, at last the grant.

        If the caller goes before he has taken the grant, the waiter leaves the queue or the grant is given
        back; so it is after *within_s* seconds too. Raises what refuses the call, and `NotInTime`.
        """
        call, also = ev.CallId(next(self._numbers)), tuple(groups[1:])
        event = ev.Acquire(self._clock(), job_id, groups[0], phase, call, also, independent)
        commands = self._decide(event)
        news = self._callers[call] = asyncio.Queue()
        self._submit(commands)
        if within_s is not None:
            late = NotInTime(f"job {job_id}: the devices of {', '.join(groups)} were not granted in time")
            refusal = cmd.Refuse(frozenset({call}), late)
            asyncio.get_running_loop().call_later(within_s, news.put_nowait, refusal)
        answered = False
        try:
            while not answered:
                update = await news.get()
                if isinstance(update, cmd.Refuse):
                    raise update.error
                yield update
                answered = isinstance(update, cmd.Grant)
        finally:
            del self._callers[call]
            if not answered:
                self.post(ev.Cancel(self._clock(), call))

    async def acquire_lease(self, job_id: str, group: str, within_s: float | None = None) -> rows.Lease:
        """The same for a caller who does not care for his place."""
        async with contextlib.aclosing(self.acquire(job_id, [group], "", within_s)) as updates:
            # To the end: an acquire that is left at its grant gives it back.
            grants = [update async for update in updates if isinstance(update, cmd.Grant)]
        return grants[0].lease

    @contextlib.contextmanager
    def listening(self, key: rows.Key) -> Iterator[asyncio.Queue[cmd.Notice]]:
        """Give a queue of what the holder *key* should know."""
        news: asyncio.Queue[cmd.Notice] = asyncio.Queue()
        self._listeners.setdefault(key, set()).add(news)
        try:
            yield news
        finally:
            self._listeners[key].discard(news)
            if not self._listeners[key]:
                del self._listeners[key]

    @contextlib.contextmanager
    def watching(self) -> Iterator[asyncio.Queue[str]]:
        """Give a queue of the groups that change."""
        changed: asyncio.Queue[str] = asyncio.Queue()
        self._watchers.add(changed)
        try:
            yield changed
        finally:
            self._watchers.discard(changed)

    async def yield_lease(self, job_id: str, group: str, epoch: int) -> int:
        """End a lease; return how many members it kept waiting."""
        commands = await self.tell(ev.Yield(self._clock(), job_id, group, epoch))
        return next(command.pending for command in commands if isinstance(command, cmd.Yielded))

    async def slices(self, wanted: SliceFilter) -> Iterator[Sequence[rows.Slice]]:
        """Return pages of ended slices, then one of those that last or wait."""
        loop, live = (
            asyncio.get_running_loop(),
            [s for s in self.core.state.live_slices() if wanted.matches(s)],
        )
        pages = await loop.run_in_executor(None, lambda: list(self._store.slices(wanted)))
        ended = {row.epoch for page in pages for row in page}  # some since the look at the live ones
        live = [row for row in live if row.epoch not in ended]
        return itertools.chain(pages, [live] if live else [])

    def now(self) -> float:
        """Return the time by the arbiter's clock."""
        return self._clock()

    def close(self) -> None:
        """End the writer; what was not written yet was not answered either."""
        self._writer.shutdown(wait=True)

    def _decide(self, event: ev.Event) -> Sequence[cmd.Command]:
        """Ask the core. After an error that it did not mean, nobody knows what it thinks: `run` raises it."""
        try:
            return self.core.handle(event)
        except InterleaveError:
            raise
        except Exception as error:
            self._broken = error
            self._work.set()
            raise

    def _submit(self, commands: Sequence[cmd.Command]) -> asyncio.Future[Sequence[cmd.Command]]:
        batch = _Batch(commands, asyncio.get_running_loop().create_future())
        self._batches.append(batch)
        self._work.set()
        return batch.recorded

    def _perform(self, command: cmd.Command) -> None:
        journal(command)
        match command:
            case cmd.Operate():
                self._agents.operate(command)
            case cmd.WakeMe():
                delay = max(command.wake.at - self._clock(), 0.0)
                asyncio.get_running_loop().call_later(delay, self.post, command.wake)
            case cmd.Notice() | cmd.GroupChanged() | cmd.Grant() | cmd.Refuse() | cmd.Place():
                self._spread(command)

    def _spread(self, news: News | cmd.Notice | cmd.GroupChanged) -> None:
        """Tell those whom it concerns."""
        match news:
            case cmd.Notice():
                for listener in self._listeners.get(news.key, ()):
                    listener.put_nowait(news)
            case cmd.GroupChanged():
                for watcher in self._watchers:
                    watcher.put_nowait(news.group)
            case _:
                for call in news.calls & self._callers.keys():
                    self._callers[call].put_nowait(news)


def _changes(
    commands: Iterable[cmd.Command],
) -> tuple[dict[RowId, rows.Row | None], int | None]:
    """Return what is to be written for *commands*: for each row its last state, and the last epoch."""
    changes: dict[RowId, rows.Row | None] = {}
    epoch = None
    for command in commands:
        match command:
            case cmd.Put():
                changes[row_id(command.row)] = command.row
            case cmd.Drop():
                changes[row_id(command.row)] = None
            case cmd.Advance():
                epoch = command.after
    return changes, epoch


def _remembered(store: Store) -> Remembered:
    return Remembered(
        epoch=store.epoch,
        members=tuple(store.all(rows.Member)),
        parts=tuple(store.all(rows.Part)),
        waiters=tuple(store.all(rows.Waiter)),
        leases=tuple(store.all(rows.Lease)),
        yielded=store.last_yields(),
    )
