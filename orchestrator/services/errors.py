"""The only place where a domain error becomes a gRPC status."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from grpc import aio

from slurm_interleave.client.connect import ERROR_KEY
from slurm_interleave.client.core.errors import InterleaveError

log = logging.getLogger(__name__)
Handler = Any  # grpc.RpcMethodHandler; its fields are not in the public type


class ErrorsToStatus(aio.ServerInterceptor):
    """Answers an `InterleaveError` with its status, its text and its class name; logs whatever else fails."""

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


def _stream(method: Callable[..., AsyncIterator[Any]]) -> Any:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for message in method(request, context):
                yield message
        except InterleaveError as error:
            await _abort(context, error)

    return call


async def _abort(context: Any, error: InterleaveError) -> None:
    trailing = ((ERROR_KEY, type(error).__name__),)
    await context.abort(grpc.StatusCode[error.status], str(error), trailing)
