"""An event loop whose time is virtual, shared by processes that can be killed between any two callbacks."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import sys
import traceback
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)

_FINALLYS = 5  # one in the other, at most


def _told(context: dict[str, Any]) -> str:
    """Return what went wrong, and where."""
    error = context.get("exception")
    trace = "".join(traceback.format_exception(error)) if error is not None else ""
    return f"{context.get('message')}\n{trace}"


class _Killed(BaseException):
    """Takes down what a dead process was doing, from the inside out."""


class Handle:
    """A callback that is due; it is dropped where its process is dead by then."""

    __slots__ = ("args", "callback", "context", "due", "gone", "process")

    def __init__(
        self, when: float, callback: Callable[..., object], args: Any, context: contextvars.Context | None
    ) -> None:
        self.due, self.callback, self.args = when, callback, args
        self.context = contextvars.copy_context() if context is None else context
        self.process = self.context.get(PROCESS)
        self.gone = False

    def when(self) -> float:
        return self.due

    def cancel(self) -> None:
        self.gone = True

    def cancelled(self) -> bool:
        return self.gone


class Process:
    """What one `kill -9` ends: its tasks, its memory, its half of each connection."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.loop, self.name, self.alive = loop, name, True
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.at_end: dict[Callable[[], object], None] = {}  # what the world sees of its end
        self.stopped = False
        self._kept: list[Handle] = []  # what has come due while it is stopped
        loop.processes[self] = None

    def spawn(self, work: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        """Run *work* in this process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        return context.run(self.loop.create_task, work, name=name)

    def stop(self) -> None:
        """Run no more until `go_on`, as after SIGSTOP."""
        self.stopped = True

    def keep(self, handle: Handle) -> None:
        """Run *handle* when the process goes on."""
        self._kept.append(handle)

    def go_on(self) -> None:
        """Catch up with what has come due."""
        self.stopped = False
        kept, self._kept = self._kept, []
        self.loop.catch_up(kept)

    def kill(self) -> None:
        """End now. What its code does on its way out has no effect, since whoever is dead is not heard."""
        if not self.alive:
            return
        self.alive = False
        del self.loop.processes[self]
        for tell in list(self.at_end):
            tell()
        tasks, self.tasks = list(self.tasks), {}
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        for task in tasks:
            self.loop.bury(task, context)


class VirtualLoop(asyncio.AbstractEventLoop):
    """Callbacks in the order of their time; time jumps to the next one. The same each time it is run."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = itertools.count()
        self._generators: weakref.WeakKeyDictionary[AsyncGenerator[Any, Any], Process | None] = (
            weakref.WeakKeyDictionary()
        )
        self.world = contextvars.Context()  # what happens in no process
        self.processes: dict[Process, None] = {}  # that live
        self.failures: list[str] = []
        self.latency: Callable[[], float] = lambda: 0.001  # of work in a thread

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        handle = Handle(self._now, callback, args, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        handle = Handle(when, callback, args, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name)
        process = PROCESS.get()
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(lambda done: process.tasks.pop(done, None))
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Run *func* at once, or where it has a thread of its own (a database's) some time later."""
        future = self.create_future()

        def work() -> None:
            if future.done():
                return
            try:
                result, error = func(*args), None
            except Exception as raised:  # noqa: BLE001 - it is whoever waits who is to know
                result, error = None, raised
            if future.done():  # its process was killed by what it did
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        if executor is None:
            work()
        else:
            self.call_later(self.latency(), work)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = PROCESS.get()
        if process is None or process.alive:
            name = process.name if process else "the world"
            self.failures.append(f"{name}: {_told(context)}")

    def bury(self, task: asyncio.Task[Any], context: contextvars.Context) -> None:
        """Take down a task of a dead process, also one that waits in its `finally`."""
        coro: Any = task.get_coro()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if coro.cr_running:
            self.call_soon(self.bury, task, context, context=self.world)
            return
        for _ in range(_FINALLYS):
            try:
                context.run(coro.throw, _Killed())
            except BaseException:  # noqa: BLE001 - whatever it wants to tell, nobody hears it
                return

    def step(self) -> bool:
        """Run the next callback; False: there is none."""
        if self._ready:
            handle = self._ready.popleft()
        elif self._timers:
            when, _, handle = heapq.heappop(self._timers)
            if not handle.gone:
                self._now = max(self._now, when)
        else:
            return False
        process = handle.process
        if handle.gone or (process is not None and not process.alive):
            return True
        if process is not None and process.stopped:
            process.keep(handle)
        else:
            handle.context.run(handle.callback, *handle.args)
        return True

    def catch_up(self, kept: Iterable[Handle]) -> None:
        """Run callbacks that were due earlier."""
        self._ready.extend(kept)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be the running loop."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._first, self._last)
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _first(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[generator] = PROCESS.get()

    def _last(self, generator: AsyncGenerator[Any, Any]) -> None:
        process = self._generators.pop(generator, None)
        if process is not None and process.alive:
            process.spawn(generator.aclose())
