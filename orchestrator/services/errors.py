"""The only place where a domain error becomes a gRPC status."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from grpc import aio

from slurm_interleave.client.connect import ERROR_KEY
from slurm_interleave.client.core.errors import InterleaveError

Handler = Any  # grpc.RpcMethodHandler; its fields are not in the public type


class ErrorsToStatus(aio.ServerInterceptor):
    """Answers an `InterleaveError` with its status, its text and its class name."""

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Wrap the handler of a call."""
        handler: Handler = await continuation(handler_call_details)
        if handler is None:
            return None
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
