"""Threads where a host may have no more of them, as under a pid limit: fewer do the work."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread


def start(threads: Iterable[Thread]) -> list[Thread]:
    """Start *threads*, up to the first that cannot be; return those that run."""
    started: list[Thread] = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except RuntimeError:
        pass
    return started


class Threads(ThreadPoolExecutor):
    """A pool for what would stop an event loop: one thread from the start, and more where they can be had."""

    def __init__(self, most: int | None = None, name: str = "") -> None:
        super().__init__(most, name)
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
