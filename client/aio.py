"""The same for asyncio: waiting for the devices blocks no other task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

from slurm_interleave.client.ask import Lease, Stop
from slurm_interleave.client.interleaver import Interleaver

_Result = TypeVar("_Result")


class AsyncInterleaver:
    """An `Interleaver` whose calls are awaited. Tasks that hold at the same time share the job's lease.

    A task that is cancelled while it waits leaves the queue; a grant of that moment is given back.
    """

    def __init__(self, interleaver: Interleaver) -> None:
        """*interleaver* may be used beside it, as to register callbacks."""
        self.interleaver = interleaver

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> AsyncInterleaver:
        """Return that of the job that this process belongs to; see `Interleaver.from_env`."""
        return cls(Interleaver.from_env(environ))

    @property
    def lease(self) -> Lease | None:
        """The lease that is held now."""
        return self.interleaver.lease

    async def acquire(
        self, phase: str = "", timeout: float | None = None, groups: Sequence[str] | None = None
    ) -> Lease:
        """Wait until the job holds its devices; see `Interleaver.acquire`."""
        mine, stop = self.interleaver, Stop()
        acquiring = _start(lambda: mine.acquire(phase, timeout, groups, stop=stop))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            if not stop.stop():
                _then(acquiring, lambda: mine.yield_(groups))
            raise

    async def try_acquire(
        self, phase: str = "", timeout: float | None = None, groups: Sequence[str] | None = None
    ) -> Lease | None:
        """Acquire if nobody comes first; see `Interleaver.try_acquire`. Goes on if the task is cancelled."""
        return await _in_thread(lambda: self.interleaver.try_acquire(phase, timeout, groups))

    async def yield_(self, groups: Sequence[str] | None = None) -> None:
        """Give the devices up; see `Interleaver.yield_`."""
        await _in_thread(lambda: self.interleaver.yield_(groups))

    async def should_yield(self) -> bool:
        """Tell whether the devices are held and somebody waits for them."""
        return await _in_thread(lambda: self.interleaver.should_yield)

    async def yield_if_wanted(self, timeout: float | None = None) -> bool:
        """Give way to those who wait; see `Interleaver.yield_if_wanted`. Goes on if the task is cancelled."""
        return await _in_thread(lambda: self.interleaver.yield_if_wanted(timeout))

    @contextlib.asynccontextmanager
    async def turn(
        self, phase: str = "", timeout: float | None = None, groups: Sequence[str] | None = None
    ) -> AsyncIterator[Lease]:
        """Hold the devices for the body of an `async with`, or as a decorator for each call."""
        mine, stop = self.interleaver, Stop()
        entering = _start(lambda: mine.enter(phase, timeout, groups, stop=stop))
        try:
            lease = await asyncio.shield(entering)
        except asyncio.CancelledError:
            stop.stop()
            _then(entering, lambda: mine.leave(groups, failing=True))
            raise
        try:
            yield lease
        except BaseException:
            await _in_thread(lambda: mine.leave(groups, failing=True))
            raise
        await _in_thread(lambda: mine.leave(groups))

    async def close(self) -> None:
        """Yield if a lease is held, and close the connection."""
        await _in_thread(self.interleaver.close)


async def _in_thread(call: Callable[[], _Result]) -> _Result:
    """Return what *call* returns; it ends also if the task is cancelled."""
    return await asyncio.shield(_start(call))


def _then(done: asyncio.Future[_Result], undo: Callable[[], object]) -> None:
    """Undo what was *done* in the moment when its task was cancelled, if it was done."""
    done.add_done_callback(lambda over: None if over.exception() is not None else _start(undo))


def _start(call: Callable[[], _Result]) -> asyncio.Future[_Result]:
    """Begin *call* in a thread of its own: those of the loop's executor may all be waiting."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def tell(result: _Result | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
            future.exception()  # whoever was cancelled does not look at it
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 - it is raised where it is awaited
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=work, name="interleave-call", daemon=True).start()
    return future
