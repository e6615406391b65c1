"""Threads for what would stop an event loop: one from the start, and more where the host has them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from typing_extensions import override


class Threads(ThreadPoolExecutor):
    """A pool that does with the threads it has where no other can be started, as under a pid limit."""

    def __init__(self, most: int | None = None, name: str = "") -> None:
        super().__init__(most, name)
        self.submit(int)

    @override
    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
