"""Carries out what the core decides: first remembered in SQL, then done.

Events are decided at once, in order; what they changed is written by one thread, all that has piled up in
one transaction; only then are answers given and agents told. So a crash loses nothing that anybody saw.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.state import Remembered
from slurm_interleave.orchestrator.journal import journal
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import RowId, SliceFilter, Store, row_id

OnPlace = Callable[[int, str], None]


class Agents(Protocol):
    """Whom operations are sent to."""

    def operate(self, operation: cmd.Operate) -> None:
        """Send *operation* if the agent is connected; it is sent again when it comes back."""


@dataclass
class _Batch:
    """The commands of one event, and who waits until they are remembered."""

    commands: Sequence[cmd.Command]
    recorded: asyncio.Future[Sequence[cmd.Command]]


@dataclass
class _Caller:
    """Someone who waits for a grant."""

    answer: asyncio.Future[rows.Lease]
    on_place: OnPlace | None

    def hear(self, news: cmd.Grant | cmd.Refuse | cmd.Place) -> None:
        """Take the answer, or word of the place in the queue."""
        match news:
            case cmd.Grant():
                self.answer.set_result(news.lease)
            case cmd.Refuse():
                self.answer.set_exception(news.error)
            case cmd.Place() if self.on_place is not None:
                self.on_place(news.ahead, news.reason)


class Arbiter:
    """Owns the core and its memory; lives in one event loop."""

    def __init__(self, store: Store, agents: Agents, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._agents = agents
        self._clock = clock
        self._writer = ThreadPoolExecutor(1, "interleave-sql")
        self._batches: list[_Batch] = []
        self._work = asyncio.Event()
        self._callers: dict[ev.CallId, _Caller] = {}
        self._numbers = itertools.count(1)
        self.core = Core(_remembered(store), store.generation)
        self._submit(self.core.start(clock()))

    async def run(self) -> None:
        """Write and carry out, until cancelled. Raises `Replaced` if another orchestrator took over."""
        loop = asyncio.get_running_loop()
        while True:
            await self._work.wait()
            self._work.clear()
            batches, self._batches = self._batches, []
            changes, epoch = _changes(command for batch in batches for command in batch.commands)
            if changes or epoch is not None:
                newest = self._store.epoch if epoch is None else epoch
                await loop.run_in_executor(self._writer, self._store.record, changes, newest)
            for batch in batches:
                for command in batch.commands:
                    self._perform(command)
                batch.recorded.set_result(batch.commands)

    async def tell(self, event: ev.Event) -> Sequence[cmd.Command]:
        """Decide on *event*; return its commands when they are recorded and done."""
        return await self._submit(self.core.handle(event))

    def post(self, event: ev.Event) -> None:
        """Decide on *event* without waiting for the record."""
        self._submit(self.core.handle(event))

    async def remember(self, changes: Sequence[cmd.Put | cmd.Drop]) -> None:
        """Record rows that no decision depends on, such as the book of placement."""
        await self._submit(changes)

    async def acquire(
        self, job_id: str, group: str, phase: str, on_place: OnPlace | None = None
    ) -> rows.Lease:
        """Wait until the member holds its devices; *on_place* hears of its place in the queue.

        When cancelled, the waiter leaves the queue, and a grant that came meanwhile is given back.
        """
        call = ev.CallId(next(self._numbers))
        caller = _Caller(asyncio.get_running_loop().create_future(), on_place)
        commands = self.core.handle(ev.Acquire(self._clock(), job_id, group, phase, call))
        self._callers[call] = caller
        self._submit(commands)
        try:
            return await caller.answer
        except asyncio.CancelledError:
            self.post(ev.Cancel(self._clock(), call))
            raise
        finally:
            del self._callers[call]

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
        return itertools.chain(pages, [live] if live else [])

    def now(self) -> float:
        """Return the time by the arbiter's clock."""
        return self._clock()

    def close(self) -> None:
        """End the writer; what was not written yet was not answered either."""
        self._writer.shutdown(wait=True)

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
            case cmd.Grant() | cmd.Refuse() | cmd.Place():
                for caller in self._waiting(command.calls):
                    caller.hear(command)

    def _waiting(self, calls: Iterable[ev.CallId]) -> Iterator[_Caller]:
        for call in calls:
            caller = self._callers.get(call)
            if caller is not None and not caller.answer.done():
                yield caller


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
