"""A TCP proxy that a test can cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Proxy:
    """Passes bytes between its own port of loopback and *target*."""

    def __init__(self, target: int, late_s: float) -> None:
        self._target = target
        self._late_s = late_s
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hold_answers(self) -> None:
        """Pass nothing to clients any more; a cut ends that."""
        self._passing.clear()

    def fall_silent(self) -> None:
        """Pass nothing over the connections of now any more, which stay open: a host is gone."""
        for task in self._tasks:
            task.cancel()

    def cut(self) -> None:
        """Reset all connections; new ones are passed again."""
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._passing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, back}
        for source, sink, answers in ((reader, back, False), (there, writer, True)):
            task = asyncio.create_task(self._pass(source, sink, answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        with contextlib.suppress(ConnectionError):
            await asyncio.sleep(self._late_s if answers else 0)
            while data := await source.read(65_536):
                if answers:
                    await self._passing.wait()
                sink.write(data)
                await sink.drain()
        sink.close()


@contextlib.asynccontextmanager
async def proxy(target: int, late_s: float = 0) -> AsyncIterator[Proxy]:
    """A running proxy to a port of loopback, whose first word comes so late, as of a busy host."""
    running = Proxy(target, late_s)
    server = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    try:
        yield running
    finally:
        server.close()
        running.cut()
        await asyncio.gather(*running._tasks, return_exceptions=True)
