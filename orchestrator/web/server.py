"""HTTP as the page needs it: one GET a connection, with a bound on everything that a client could use up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import h11

from slurm_interleave.client.core.errors import ConfigError

log = logging.getLogger(__name__)
_CONNECTIONS_MAX = 32
_HEAD_BYTES_MAX = 8192
_DEADLINE_S = 10.0  # for a whole connection, however slowly its client reads or writes
_READ_BYTES = 4096


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    status: int
    body: str
    headers: tuple[tuple[str, str], ...] = ()


Respond = Callable[[str], Awaitable[Answer]]


class HttpServer:
    """Answers GET and HEAD with what *respond* makes of the path."""

    def __init__(self, respond: Respond, deadline_s: float = _DEADLINE_S) -> None:
        self._respond = respond
        self._deadline_s = deadline_s
        self._open: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self, address: str) -> AsyncIterator[int]:
        """Serve at *address* and give the port. Raises `ConfigError` if nobody can listen there."""
        host, _, port = address.rpartition(":")
        try:
            server = await asyncio.start_server(self._accept, host.strip("[]"), int(port), limit=_READ_BYTES)
        except OSError as error:
            raise ConfigError(f"[web] listen = {address!r} cannot be used: {error}") from None
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._connection(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(self._exchange(reader, writer), self._deadline_s)
        except (asyncio.TimeoutError, OSError, h11.ProtocolError):
            pass  # its client's matter
        except Exception:
            log.exception("page.failed")
        finally:
            # Also of what a client does not read.
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        answer, head_only = await self._answer(peer, reader)
        body = answer.body.encode()
        headers = [
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
            *answer.headers,
        ]
        writer.write(peer.send(h11.Response(status_code=answer.status, headers=headers)) or b"")
        if not head_only:
            writer.write(peer.send(h11.Data(data=body)) or b"")
        await writer.drain()
        # Ends with the last byte, not before: a reset would take away what the client has not read yet.
        writer.write_eof()
        while await reader.read(_READ_BYTES):
            pass

    async def _answer(self, peer: h11.Connection, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
        while (event := peer.next_event()) is h11.NEED_DATA:
            peer.receive_data(await reader.read(_READ_BYTES))
        if not isinstance(event, h11.Request):
            raise h11.RemoteProtocolError("no request")
        if event.method not in (b"GET", b"HEAD"):
            return Answer(405, "This page is for reading.\n", (("Allow", "GET, HEAD"),)), False
        return await self._respond(event.target.decode("latin-1")), event.method == b"HEAD"
