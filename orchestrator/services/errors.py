"""The only place where a domain error becomes a gRPC status."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc
from grpc import aio

from slurm_interleave.client.connect import ERROR_KEY
from slurm_interleave.client.core.errors import InterleaveError

Handler = Any  # grpc.RpcMethodHandler; its fields are not in the public type


class ErrorsToStatus:
    """A server to add services to, whose calls answer an `InterleaveError` with its status, text and class.

    An interceptor would do the same, and cost a tenth of a call.
    """

    def __init__(self, server: aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Add *handlers*, as generated code does."""
        self._server.add_generic_rpc_handlers(tuple(map(_Wrapped, handlers)))


class _Wrapped(grpc.GenericRpcHandler):
    def __init__(self, inner: grpc.GenericRpcHandler) -> None:
        self._inner = inner
        self._known: dict[str, Handler] = {}

    def service(self, handler_call_details: Any) -> Handler:
        method = handler_call_details.method
        if method not in self._known:
            handler: Handler = self._inner.service(handler_call_details)
            if handler is None:
                return None
            self._known[method] = _wrap(handler)
        return self._known[method]


def _wrap(handler: Handler) -> Handler:
    codec = (handler.request_deserializer, handler.response_serializer)
    if not handler.response_streaming:
        return grpc.unary_unary_rpc_method_handler(_answer(handler.unary_unary), *codec)
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(_stream(handler.stream_stream), *codec)
    return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream), *codec)


def _answer(method: Callable[..., Awaitable[Any]]) -> Any:
    async def call(request: Any, context: Any) -> Any:
        try:
            return await method(request, context)
        except InterleaveError as error:
            return await _abort(context, error)

    return call


def _stream(method: Callable[..., AsyncGenerator[Any, None]]) -> Any:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            # Closed at once when the client is gone: an acquire gives back what nobody heard.
            async with contextlib.aclosing(method(request, context)) as messages:
                async for message in messages:
                    yield message
        except InterleaveError as error:
            await _abort(context, error)

    return call


async def _abort(context: Any, error: InterleaveError) -> None:
    trailing = ((ERROR_KEY, type(error).__name__),)
    await context.abort(grpc.StatusCode[error.status], str(error), trailing)
