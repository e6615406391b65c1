"""Those who watch groups, and what they have not been told yet."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Iterable

# A group with many waiters changes hundreds of times a second, and each look at it costs milliseconds.
GATHER_S = 0.1


class Watcher:
    """The groups that one watcher is to be told of: each at once, and then at most once in `GATHER_S`."""

    def __init__(
        self, groups: Iterable[str], call_later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        """Begin with *groups*, as if they had changed. *call_later* is a loop's."""
        self._call_later = call_later
        self._changed = dict.fromkeys(groups)
        self._resting: dict[str, bool] = {}  # told of a moment ago; whether they have changed since
        self._news = asyncio.Event()
        self._news.set()

    def changed(self, group: str) -> None:
        """Note that *group* has changed."""
        if group in self._resting:
            self._resting[group] = True
            return
        self._changed[group] = None
        self._news.set()

    async def next(self) -> Collection[str]:
        """Wait for changes and return their groups; the first time at once."""
        await self._news.wait()
        self._news.clear()
        told, self._changed = self._changed, {}
        for group in told:
            self._resting[group] = False
            self._call_later(GATHER_S, functools.partial(self._rested, group))
        return told

    def _rested(self, group: str) -> None:
        if self._resting.pop(group):
            self.changed(group)
