"""The gRPC server of `interleaved`. It may listen before there is anything to serve."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import resource
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc import aio

from slurm_interleave.client.core.errors import ConfigError

SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class Door(grpc.GenericRpcHandler):
    """A server whose services come later; made inside the event loop.

    Who comes back after a restart need not try again, which clients of v1alpha1 would not do: what comes
    before `serve` is answered after it. Most of a start is one piece of work, in which gRPC's own threads
    keep calls.
    """

    def __init__(self, listen: str) -> None:
        """*listen*: host:port; port 0 takes a free one."""
        self._listen = listen
        self._server = aio.server(options=(*SERVER_OPTIONS, _connections_max()))
        self._server.add_generic_rpc_handlers((self,))
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._serving = asyncio.Event()
        self.port = 0  # once it is open

    async def open(self) -> None:
        """Listen, if it does not yet. Raises `ConfigError`."""
        if self.port:
            return
        try:
            self.port = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            raise ConfigError(f"[orchestrator] listen = {self._listen!r} cannot be used: {error}") from None
        await self._server.start()

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add *handlers*, as generated code does."""
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Do nothing: the generic ones are enough."""

    def serve(self) -> None:
        """All services are there."""
        self._serving.set()

    def service(self, handler_call_details: Any) -> Any:
        """Return what answers a call; None if nothing does."""
        if self._serving.is_set():
            return self._found(handler_call_details)
        # Without a codec of requests it does for calls of all kinds.
        later = _Later(self, handler_call_details)
        return grpc.stream_stream_rpc_method_handler(later.answer, response_serializer=_encode)

    async def found(self, details: Any) -> Any:
        """Return what answers a call, once the services are there."""
        await self._serving.wait()
        return self._found(details)

    def _found(self, details: Any) -> Any:
        return next((found for each in self._handlers if (found := each.service(details))), None)

    async def close(self) -> None:
        """End all calls."""
        await self._server.stop(grace=0.2)


def _connections_max() -> tuple[str, int]:
    """Return the option that leaves files to open for the rest: the database, and the commands of Slurm."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return "grpc.max_allowed_incoming_connections", files * 3 // 4


class _Later:
    """A call of any kind, as one of streams."""

    def __init__(self, door: Door, details: Any) -> None:
        self._door, self._details = door, details

    async def answer(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        handler = await self._door.found(self._details)
        if handler is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{self._details.method} is not known here")
        decoded = (handler.request_deserializer(data) async for data in requests)
        said = decoded if handler.request_streaming else await anext(decoded, None)
        if said is None:  # who made the call has gone
            return
        if not handler.response_streaming:
            yield await handler.unary_unary(said, context)
            return
        method = handler.stream_stream if handler.request_streaming else handler.unary_stream
        if not inspect.isasyncgenfunction(method):
            await method(said, context)  # writes its answers itself
            return
        async with contextlib.aclosing(method(said, context)) as replies:
            async for reply in replies:
                yield reply


def _encode(message: Any) -> bytes:
    return bytes(message.SerializeToString())
