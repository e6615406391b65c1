"""Who waits for an answer of an acquire, and what becomes of his place when he goes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from slurm_interleave.client.core.errors import NotInTime
from slurm_interleave.orchestrator.core import commands as cmd
from slurm_interleave.orchestrator.core import events as ev
from slurm_interleave.sql.rows import Key

# Places in the queue are told this late, so that those of a moment cost a handover nothing.
_PLACES_S = 0.1
News = cmd.Grant | cmd.Refuse | cmd.Cleared | cmd.Place
_PATIENCE_IS_OVER = cmd.Place(frozenset(), 0, "")


@dataclass
class Caller:
    """One call that waits."""

    call: ev.CallId
    news: asyncio.Queue[News] = field(default_factory=asyncio.Queue)
    waits: bool = True
    calls_again: bool = False
    timers: list[asyncio.TimerHandle] = field(default_factory=list)

    async def next(self) -> cmd.Place | cmd.Grant | cmd.Cleared:
        """Return what is new; raises what refuses the call."""
        update = await self.news.get()
        if isinstance(update, cmd.Refuse):
            raise update.error
        return update

    def heard(self, update: cmd.Place | cmd.Grant | cmd.Cleared) -> None:
        """The client has been sent *update*."""
        self.calls_again = update is _PATIENCE_IS_OVER
        self.waits = not (self.calls_again or isinstance(update, cmd.Grant))

    def limit(self, within_s: float | None, patience_s: float | None, what: str) -> None:
        """Refuse the call after *within_s* seconds, and end it without an answer after *patience_s*."""
        call_later, tell = asyncio.get_running_loop().call_later, self.news.put_nowait
        if within_s is not None:
            late = NotInTime(f"{what} were not granted in time")
            self.timers.append(call_later(within_s, tell, cmd.Refuse(frozenset({self.call}), late)))
        if patience_s is not None:
            self.timers.append(call_later(patience_s, tell, _PATIENCE_IS_OVER))


class Callers:
    """All callers who wait; lives in one event loop."""

    def __init__(
        self,
        post: Callable[[ev.Event], None],
        clock: Callable[[], float] = time.time,
        expect: Callable[[Iterable[ev.CallId]], Mapping[ev.CallId, float]] = lambda _: {},
    ) -> None:
        """*post* takes the events of those who go; *expect* says how long callers will wait, where known."""
        self._post = post
        self._expect = expect
        self._clock = clock
        self._waiting: dict[ev.CallId, Caller] = {}
        self._places: dict[ev.CallId, cmd.Place] = {}  # not told yet
        self._named: dict[Key, tuple[str, set[ev.CallId]]] = {}  # the last acquire of each member

    @contextlib.contextmanager
    def waiting(self, call: ev.CallId, key: Key, name: str = "") -> Iterator[Caller]:
        """Give the caller of *call* while he waits.

        If he goes before he has taken the grant, the waiter leaves the queue or the grant is given back. Who
        named his call would have said that he gives up: so he was cut off, and is given time to come back.
        """
        caller = self._waiting[call] = Caller(call)
        if name:
            known, calls = self._named.get(key, ("", set()))
            self._named[key] = (name, {*calls, call} if known == name else {call})
        cut = False
        try:
            yield caller
        except (asyncio.CancelledError, GeneratorExit):
            cut = bool(name)
            raise
        finally:
            for timer in caller.timers:
                timer.cancel()
            del self._waiting[call]
            if cut or caller.calls_again:
                self._post(ev.Away(self._clock(), call, cut))
            elif caller.waits:
                self._post(ev.Cancel(self._clock(), call))

    def named(self, key: Key, name: str) -> frozenset[ev.CallId]:
        """Return the calls of *key* that its client made for the acquire *name*."""
        known, calls = self._named.get(key, ("", set()))
        return frozenset(calls) if known == name else frozenset()

    def forget(self, key: Key) -> None:
        """The member is gone."""
        self._named.pop(key, None)

    def answer(self, news: cmd.Grant | cmd.Refuse | cmd.Cleared) -> None:
        """Tell those whom it concerns."""
        for call in news.calls & self._waiting.keys():
            self._places.pop(call, None)
            self._waiting[call].news.put_nowait(news)

    def place(self, place: cmd.Place) -> None:
        """Tell a place in the queue, soon."""
        if not self._places:
            asyncio.get_running_loop().call_later(_PLACES_S, self._tell_places)
        self._places.update(dict.fromkeys(place.calls, place))

    def _tell_places(self) -> None:
        places, self._places = self._places, {}
        told = places.keys() & self._waiting.keys()
        expected_s = self._expect(told)
        for call in told:
            place = replace(places[call], expected_s=expected_s.get(call))
            self._waiting[call].news.put_nowait(place)
