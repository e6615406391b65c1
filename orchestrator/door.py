"""The gRPC server of `interleaved`. It may listen before there is anything to serve."""

from __future__ import annotations

from collections.abc import Iterable
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

    Most of a start is one piece of work, in which gRPC's own threads take connections and keep calls: so who
    comes back after a restart need not try again. A call that the loop sees before `serve` is told that the
    orchestrator is not there yet.
    """

    def __init__(self, listen: str) -> None:
        """*listen*: host:port; port 0 takes a free one."""
        self._listen = listen
        self._server = aio.server(options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((self,))
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._serves = False
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
        self._serves = True

    def service(self, handler_call_details: Any) -> Any:
        """Return what answers a call; None if nothing does."""
        if not self._serves:
            return _NOT_YET
        return next((found for each in self._handlers if (found := each.service(handler_call_details))), None)

    async def close(self) -> None:
        """End all calls."""
        await self._server.stop(grace=0.2)


async def _refuse(_requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "interleaved has just been started; try again")


# Without a codec it does for calls of all kinds.
_NOT_YET: Any = grpc.stream_stream_rpc_method_handler(_refuse)
