"""Carries out what the core decides: first remembered in SQL, then done.

Events are decided at once, in order; what they changed is written; only then are answers given and agents
told. So a crash loses nothing that anybody saw.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Protocol

from slurm_interleave.client.core.errors import InterleaveError, NotInTime
from slurm_interleave.orchestrator.callers import Callers
from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.orchestrator.core.core import Core
from slurm_interleave.orchestrator.core.rules import Rules
from slurm_interleave.orchestrator.core.slices import live_slices
from slurm_interleave.orchestrator.expectations import Expectations
from slurm_interleave.orchestrator.memory import remembered
from slurm_interleave.orchestrator.recorder import Recorder
from slurm_interleave.orchestrator.shares import Shares
from slurm_interleave.orchestrator.watchers import Watcher
from slurm_interleave.sql import rows
from slurm_interleave.sql.store import PAGE, SliceFilter, Store

# Observers come so much later, when those who wait have been served.
_OBSERVE_S = 0.005
_Page = Sequence[rows.Slice] | Sequence[rows.Day]
ACQUIRES_MAX = 4096  # of a job: each of its ranks may ask


class Agents(Protocol):
    """Whom operations are sent to."""

    def operate(self, operation: cmd.Operate) -> None:
        """Send *operation* if the agent is connected; it is sent again when it comes back."""

    def stop(self, stop: cmd.Stop | cmd.CancelOperation) -> None:
        """Have a process killed, or an operation undone, if the agent is connected."""


class Arbiter:
    """Owns the core and its memory; lives in one event loop."""

    def __init__(
        self,
        store: Store,
        agents: Agents,
        rules: Rules,
        clock: Callable[[], float] = time.time,
        wall: Callable[[], float] | None = None,
    ) -> None:
        """*clock* is for spans of time, *wall* for moments that other machines tell; None: the same."""
        self._store = store
        self._agents = agents
        self._clock = clock
        self.wall = wall or clock
        self._recorder = Recorder(store, self._perform)
        self._listeners: dict[rows.Key, set[asyncio.Queue[cmd.Notice]]] = {}
        self._watchers: set[Watcher] = set()
        self._numbers = itertools.count(1)
        self.observers: list[Callable[[ev.Event, Sequence[cmd.Command]], None]] = []  # are told each decision
        self.core = Core(remembered(store, clock()), store.generation, rules)
        self.expectations = Expectations(self.core, clock)
        self._shares = Shares(ACQUIRES_MAX, "acquires")
        self._callers = Callers(self.post, clock, self.expectations.of)
        self._recorder.submit(self.core.start(clock()))

    async def run(self) -> None:
        """Write and carry out, until cancelled. Raises `Replaced` if another orchestrator took over."""
        await self._recorder.run()

    async def tell(self, event: ev.Event) -> Sequence[cmd.Command]:
        """Decide on *event*; return its commands when they are recorded and done."""
        return await self._recorder.submit(self._decide(event))

    def post(self, *events: ev.Event) -> None:
        """Decide on *events* without waiting for their record, which is one."""
        commands: list[cmd.Command] = []
        try:
            for event in events:
                commands += self._decide(event)
        finally:
            self._recorder.submit(commands)

    async def remember(self, changes: Sequence[cmd.Put | cmd.Drop]) -> None:
        """Record rows that no decision depends on, such as the book of placement."""
        await self._recorder.submit(changes)

    async def acquire(
        self,
        job_id: str,
        groups: Sequence[str],
        phase: str,
        within_s: float | None = None,
        *,
        independent: bool = False,
        patience_s: float | None = None,
        name: str = "",
        silent: bool = False,
    ) -> AsyncGenerator[cmd.Place | cmd.Grant, None]:
        """Wait until the job holds the devices of *groups*: yields places in the queue, at last the grant.

        To be told no place, *silent*, takes a third of the work off those who wait.

        If the caller goes before he has taken the grant, the waiter leaves the queue or the grant is given
        back; so it is after *within_s* seconds too. One who gave the call a *name* has time to come back. A
        place without calls is the last: *patience_s* seconds are over, and the caller's next call finds his
        place kept. Raises what refuses the call, `NotInTime`, and `TooMany`.
        """
        call, also = ev.CallId(next(self._numbers)), tuple(groups[1:])
        with self._shares.one_of(f"job {job_id}"):
            event = ev.Acquire(self._clock(), job_id, groups[0], phase, call, also, independent, name, silent)
            commands = self._decide(event)
            with self._callers.waiting(call, self.core.calls.find(job_id, groups[0]), name) as caller:
                self._recorder.submit(commands)
                caller.limit(within_s, patience_s, f"job {job_id}: the devices of {', '.join(groups)}")
                while caller.waits:
                    update = await caller.next()
                    if not isinstance(update, cmd.Cleared):
                        yield update
                    caller.heard(update)

    async def abandon(self, job_id: str, group: str, name: str) -> None:
        """Forget the acquire *name*, that its client gave up; give back what it was granted."""
        try:
            calls = self._callers.named(self.core.calls.find(job_id, group), name)
        except InterleaveError:  # of a member that is gone no call is known
            calls = frozenset()
        for call in calls:
            await self.tell(ev.Cancel(self._clock(), call))
        await self.tell(ev.Abandon(self._clock(), job_id, name))

    async def acquire_lease(
        self, job_id: str, group: str, within_s: float | None = None, name: str = ""
    ) -> rows.Lease:
        """The same for a caller who does not care for his place."""
        acquire = self.acquire(job_id, [group], "", within_s, name=name, silent=True)
        async with contextlib.aclosing(acquire) as updates:
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
    def watching(self) -> Iterator[Watcher]:
        """Give who is told of all groups that there are, and then of those that change."""
        watcher = Watcher(self.core.state.groups, asyncio.get_running_loop().call_later)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def yield_lease(
        self, job_id: str, group: str, epoch: int, call: str = "", *, pause: bool = False
    ) -> int:
        """End a lease, if no acquire after *call* was told of it; return how many it kept waiting."""
        commands = await self.tell(ev.Yield(self._clock(), job_id, group, epoch, call, pause))
        return next(command.pending for command in commands if isinstance(command, cmd.Yielded))

    async def clear(
        self, job_id: str, group: str, *, keep: bool = False, within_s: float | None = None
    ) -> Sequence[rows.Part]:
        """End a member's fault; return what was discarded of it. Goes on without the caller if he leaves.

        Raises what refuses it, and `NotInTime`.
        """
        call = ev.CallId(next(self._numbers))
        commands = self._decide(ev.Clear(self._clock(), job_id, group, call, keep))
        with self._callers.waiting(call, rows.Key(job_id, group)) as caller:
            self._recorder.submit(commands)
            try:
                answer = await asyncio.wait_for(caller.next(), within_s)
            except asyncio.TimeoutError:
                late = f"job {job_id}: its nodes have not answered yet; the discard goes on"
                raise NotInTime(late) from None
        return answer.lost if isinstance(answer, cmd.Cleared) else ()

    async def settled(self, key: rows.Key, within_s: float | None) -> Sequence[rows.Part]:
        """Wait until no context of a member moves; return where they are. Raises `NotInTime`."""
        core = self.core

        def moving() -> list[str]:
            return [node for node in core.state.parts.get(key, ()) if core.cancels.under_way(key, node)]

        async def settle() -> None:
            with self.watching() as news:
                while moving():
                    await news.next()

        try:
            await asyncio.wait_for(settle(), within_s)
        except asyncio.TimeoutError:
            away = sorted({*moving()} - core.state.nodes_up)
            late = "it was told to stop and has not ended yet; it does by its deadline at the latest"
            if away:
                late = f"the agent of node {', '.join(away)} is away; it is told to stop when it is back"
            raise NotInTime(f"{key}: {late}") from None
        return list(core.state.parts.get(key, {}).values())

    async def slices(self, wanted: SliceFilter, *, summed: bool = False) -> AsyncGenerator[_Page, None]:
        """Yield pages of ended slices, or of their sums, then of those that last or wait; each turn once.

        One that ends meanwhile is among the ended ones, or still among those that lasted at the beginning.
        """
        live = {_turn(row): row for row in live_slices(self.core.state) if wanted.matches(row)}
        last = dict[tuple[str, str], float]()  # of each member: the end of what was summed up
        pages: Iterator[_Page]
        pages = self._store.days(wanted) if summed else self._store.slices(wanted)
        loop = asyncio.get_running_loop()
        while (page := await loop.run_in_executor(None, _next, pages)) is not None:
            for row in page:
                if isinstance(row, rows.Slice):
                    live.pop(_turn(row), None)
                else:  # a job whose lease was taken back asks again in the moment of its end
                    last[_member(row)] = max(math.nextafter(row.ended, 0), last.get(_member(row), 0.0))
            yield page
        rest = iter([row for row in live.values() if row.requested > last.get(_member(row), -1.0)])
        while page := tuple(itertools.islice(rest, PAGE)):
            yield page

    def now(self) -> float:
        """Return the time by the arbiter's clock."""
        return self._clock()

    def close(self) -> None:
        """End the writer; what was not written yet was not answered either."""
        self._recorder.close()

    def _decide(self, event: ev.Event) -> Sequence[cmd.Command]:
        """Ask the core. After an error that it did not mean, nobody knows what it thinks: `run` raises it."""
        try:
            commands = self.core.handle(event)
        except InterleaveError:
            raise
        except Exception as error:
            self._recorder.stop(error)
            raise
        for observe in self.observers:
            asyncio.get_running_loop().call_later(_OBSERVE_S, observe, event, commands)
        return commands

    def _perform(self, command: cmd.Command) -> None:
        match command:
            case cmd.Operate():
                self._agents.operate(command)
            case cmd.Stop() | cmd.CancelOperation():
                self._agents.stop(command)
            case cmd.WakeMe():
                delay = max(command.wake.at - self._clock(), 0.0)
                asyncio.get_running_loop().call_later(delay, self.post, command.wake)
            case cmd.Place():
                self._callers.place(command)
            case cmd.Grant() | cmd.Refuse() | cmd.Cleared():
                self._callers.answer(command)
            case cmd.Drop(row=rows.Member() as member):
                self._callers.forget(rows.Key(member.job_id, member.group))
            case cmd.Notice() | cmd.GroupChanged():
                self._spread(command)

    def _spread(self, news: cmd.Notice | cmd.GroupChanged) -> None:
        """Tell those whom it concerns."""
        match news:
            case cmd.Notice():
                for listener in self._listeners.get(news.key, ()):
                    listener.put_nowait(news)
            case cmd.GroupChanged():
                for watcher in self._watchers:
                    watcher.changed(news.group)


def _next(pages: Iterator[_Page]) -> _Page | None:
    return next(pages, None)


def _turn(row: rows.Slice) -> tuple[str, str, float]:
    return *_member(row), row.requested


def _member(row: rows.Slice | rows.Day) -> tuple[str, str]:
    return row.job_id, row.group
