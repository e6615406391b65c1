"""Connections between processes: in order within a stream, else as slow and lossy as the dice say."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from tests.simulation.loop import Process, VirtualLoop

if TYPE_CHECKING:
    from tests.simulation.dice import Dice

Status = tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]
OK: Status = (grpc.StatusCode.OK, "", ())
GONE: Status = (grpc.StatusCode.UNAVAILABLE, "connection lost", ())


class Pipe:
    """One direction of a connection."""

    def __init__(self, net: Network, source: Process, target: Process) -> None:
        self._net, self.source, self.target = net, source, target
        self._last = 0.0
        self.cut = False

    def push(self, deliver: Callable[..., object], *args: Any, last: bool = False) -> None:
        """Let *deliver* be called at the other end, later; *last*: also from a process that is dead."""
        if self.cut or not (self.source.alive or last):
            return
        loop, dice = self._net.loop, self._net.dice
        self._last = max(self._last, loop.time() + dice.delay())
        loop.call_at(self._last, self._arrive, deliver, args, context=loop.world)

    def _arrive(self, deliver: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.cut or not self.target.alive:
            return
        self._net.happens("message", self.source.name, self.target.name, deliver.__name__)
        deliver(*args)


class Call:
    """One RPC: a pipe each way, the caller's inbox and the server's."""

    def __init__(self, net: Network, client: Process, server: Process, method: str) -> None:
        self.net, self.client, self.server, self.method = net, client, server, method
        self.up, self.down = Pipe(net, client, server), Pipe(net, server, client)
        self.replies = Inbox(net.loop)
        self.requests = Inbox(net.loop)
        self.status: Status | None = None
        self.task: asyncio.Task[Any] | None = None
        self.deadline: float | None = None  # the server's
        self.arrived = math.inf
        self.metadata: tuple[tuple[str, str], ...] = ()
        self.asked: bytes | None = None
        client.at_end[self._client_died] = None
        server.at_end[self._server_died] = None
        net.calls[self] = None

    # What the caller does.

    def request(self, data: bytes | None) -> None:
        """Send a message to the server; None: no more come."""
        self.up.push(self.requests.put, data)

    def cancel(self) -> None:
        """The caller has lost interest."""
        if self.status is None:
            self.up.push(self.server_gone)
            self.close((grpc.StatusCode.CANCELLED, "cancelled", ()))

    def close(self, status: Status) -> None:
        """The caller knows how it ended."""
        if self.status is not None:
            return
        self.status = status
        self.client.at_end.pop(self._client_died, None)
        self.replies.put(None)

    # What the server does.

    def serve(self, work: Any) -> None:
        """Run *work*, the handler's, in the server."""
        self.task = self.server.spawn(work, self.method)

    def reply(self, data: bytes) -> None:
        """Send a message to the caller."""
        self.down.push(self.replies.put, data)

    def finish(self, status: Status) -> None:
        """End the call."""
        self.down.push(self.close, status)
        self.server.at_end.pop(self._server_died, None)
        self.net.calls.pop(self, None)

    def server_gone(self) -> None:
        """The caller is gone, as the server sees it."""
        self.requests.fail()
        if self.task is not None:
            self.task.cancel()

    # What becomes of the connection.

    def lose(self) -> None:
        """Lose what is under way; each side notices in its own time."""
        self.up.cut = self.down.cut = True
        self.net.calls.pop(self, None)
        self.net.later(self.client, self.close, GONE)
        self.net.later(self.server, self.server_gone)

    def _client_died(self) -> None:
        self.up.push(self.server_gone, last=True)

    def _server_died(self) -> None:
        self.down.push(self.close, GONE, last=True)
        self.net.calls.pop(self, None)


class Inbox:
    """Messages that have arrived; None is the end, an error that the stream broke."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._messages: deque[bytes | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._broken = False

    def put(self, message: bytes | None) -> None:
        self._messages.append(message)
        self._wake()

    def fail(self) -> None:
        self._broken = True
        self._wake()

    async def get(self) -> bytes | None:
        """Return the next message. Raises `ConnectionError`."""
        while not self._messages:
            if self._broken:
                raise ConnectionError("the peer is gone")
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._messages.popleft()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Network:
    """Who can be reached, and all connections."""

    def __init__(self, loop: VirtualLoop, dice: Dice, happens: Callable[..., None]) -> None:
        self.loop, self.dice, self.happens = loop, dice, happens
        self.calls: dict[Call, None] = {}
        self.server: tuple[Process, Any] | None = None  # who serves as the orchestrator now

    def later(self, who: Process, notice: Callable[..., object], *args: Any) -> None:
        """Let *who* notice what has happened to a connection."""

        def arrive() -> None:
            if who.alive:
                self.happens("notice", who.name, notice.__name__)
                notice(*args)

        self.loop.call_later(self.dice.notice(), arrive, context=self.loop.world)
