"""The only place where a domain error becomes a gRPC status, in both daemons."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from slurm_interleave.client.connect import ERROR_KEY
from slurm_interleave.client.core.errors import BadArgument, InterleaveError

_TEXT_MAX = 2000
Handler = Any  # grpc.RpcMethodHandler; its fields are not in the public type


class TakesHandlers(Protocol):
    """A server, as far as services are added to it."""

    def add_generic_rpc_handlers(self, handlers: Any, /) -> None:
        """Add *handlers*."""


class ErrorsToStatus:
    """A server to add services to, whose calls answer an `InterleaveError` with its status, text and class.

    So do they to a request whose bytes are no message, for which gRPC itself would log a traceback. An
    interceptor could not do that, and cost a tenth of a call.
    """

    def __init__(self, server: TakesHandlers) -> None:
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
    codec = (_decoder(handler.request_deserializer), handler.response_serializer)
    if not handler.response_streaming:
        return grpc.unary_unary_rpc_method_handler(_answer(handler.unary_unary), *codec)
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(_stream(handler.stream_stream), *codec)
    return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream), *codec)


def _decoder(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return what decodes a request, or gives the error that is to be its answer."""

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError as error:
            return BadArgument(f"the request is not a message of this method: {error}")

    return decoded


def _sound(request: Any) -> Any:
    if isinstance(request, BadArgument):
        raise request
    return request


async def _all_sound(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _sound(request)


def _answer(method: Callable[..., Awaitable[Any]]) -> Any:
    async def call(request: Any, context: Any) -> Any:
        try:
            return await method(_sound(request), context)
        except InterleaveError as error:
            return await _abort(context, error)

    return call


def _stream(method: Callable[..., AsyncGenerator[Any, None]]) -> Any:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            said = _all_sound(request) if hasattr(request, "__aiter__") else _sound(request)
            # Closed at once when the client is gone: an acquire gives back what nobody heard.
            async with contextlib.aclosing(method(said, context)) as messages:
                async for message in messages:
                    yield message
        except InterleaveError as error:
            await _abort(context, error)

    return call


async def _abort(context: Any, error: InterleaveError) -> None:
    trailing = ((ERROR_KEY, type(error).__name__),)
    # Longer than some kilobytes, it would be too large for the headers that carry it.
    await context.abort(grpc.StatusCode[error.status], str(error)[:_TEXT_MAX], trailing)
