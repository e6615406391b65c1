"""Waiting with a limit, and until told to stop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
CANCELLED = "cancelled"
_EARLY = 100


class Stop(threading.Event):
    """Set in the event loop to end work early; threads look at it, tasks are told."""

    def __init__(self) -> None:
        super().__init__()
        self._told: list[Callable[[], object]] = []

    def set(self) -> None:
        """Tell all who do the work."""
        super().set()
        for tell in self._told:
            tell()

    @contextmanager
    def telling(self, tell: Callable[[], object]) -> Iterator[None]:
        """Call *tell* when it is set within the block, or was before."""
        self._told.append(tell)
        if self.is_set():
            tell()
        try:
            yield
        finally:
            self._told.remove(tell)


class Stops:
    """The stops of what is under way, by its id; of what is to come the last ids are remembered."""

    def __init__(self) -> None:
        self._live: dict[str, Stop] = {}
        # What is stopped before it begins may never come, as what an earlier agent has done.
        self.early: deque[str] = deque(maxlen=_EARLY)

    def begin(self, name: str) -> Stop:
        """Return the stop of what begins now."""
        stop = self._live[name] = Stop()
        if name in self.early:
            self.early.remove(name)
            stop.set()
        return stop

    def set(self, name: str) -> None:
        """Stop what is under way, or is to come."""
        if name in self._live:
            self._live[name].set()
        elif name not in self.early:
            self.early.append(name)

    def end(self, name: str) -> None:
        """What began is over."""
        del self._live[name]


class Limit:
    """How long one thing may take. It may become shorter while it is awaited."""

    def __init__(self, seconds: float) -> None:
        """Begin to count at `over`."""
        self._seconds = seconds
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._late = False

    async def over(self, work: Awaitable[T]) -> T:
        """Await *work* in the calling task: `asyncio.wait_for` takes a task more, and so turns of the loop.

        Raises `asyncio.TimeoutError` if *work* had to be cancelled.
        """
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._cancel)
        try:
            return await work
        except asyncio.CancelledError:
            if self._late:
                raise asyncio.TimeoutError from None
            raise
        finally:
            self._timer.cancel()
            self._task = None

    def shorten(self, seconds: float) -> None:
        """Allow *seconds* more from now at most."""
        if self._task is not None and self._timer is not None:
            loop = asyncio.get_running_loop()
            if loop.time() + seconds < self._timer.when():
                self._timer.cancel()
                self._timer = loop.call_later(seconds, self._cancel)

    def _cancel(self) -> None:
        self._late = self._task is not None and self._task.cancel()


async def until_one_ends(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until one of *tasks* has ended, and end the others; raise what it raised."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
