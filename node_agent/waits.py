"""Waiting with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Await *work* in the calling task: `asyncio.wait_for` takes a task more, and so some turns of the loop.

    Raises `asyncio.TimeoutError` if *work* had to be cancelled after *seconds*.
    """
    late = False

    def cancel() -> None:
        nonlocal late
        late = task is not None and task.cancel()

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    timer = loop.call_later(seconds, cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if late:
            raise asyncio.TimeoutError from None
        raise
    finally:
        timer.cancel()
