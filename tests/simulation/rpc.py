"""gRPC as our code uses it, client and server, over simulated connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
from sqlalchemy.util import await_only

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.simulation.loop import PROCESS, Process
from tests.simulation.wire import GONE, OK, Call, Network, Status

REFUSED: Status = (grpc.StatusCode.UNAVAILABLE, "connection refused", ())


class Aborted(Exception):
    """A handler has ended its call."""


class Context:
    """What a handler knows of its call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.status = OK

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._call.metadata

    def time_remaining(self) -> float | None:
        deadline = self._call.deadline
        return None if deadline is None else deadline - self._call.net.loop.time()

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.status = (code, details, trailing)
        raise Aborted(details)


class Server:
    """Stands for `grpc.aio.server()` in the orchestrator's process."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._handlers: list[Any] = []
        self._known: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Do nothing: the generic ones are enough."""

    def add_insecure_port(self, _: str) -> int:
        return 1

    async def start(self) -> None:
        process = PROCESS.get()
        assert process is not None
        self._net.server = (process, self)

    async def stop(self, grace: float) -> None:
        """Do nothing: a process that ends takes its connections with it."""

    def accept(self, call: Call, request: bytes | None, timeout: float | None) -> None:
        """Begin a call that has arrived."""
        call.arrived = self._net.loop.time()
        if call.method not in self._known:
            details = SimpleNamespace(method=call.method, invocation_metadata=())
            self._known[call.method] = next(h for each in self._handlers if (h := each.service(details)))
        if timeout is not None:
            loop = self._net.loop
            call.deadline = loop.time() + timeout
            loop.call_later(timeout, call.server_gone, context=loop.world)
        call.serve(_serve(call, self._known[call.method], request))


async def _serve(call: Call, handler: Any, request: bytes | None) -> None:
    context = Context(call)
    try:
        if handler.response_streaming:
            method = handler.stream_stream if handler.request_streaming else handler.unary_stream
            asked = _requests(call, handler) if request is None else handler.request_deserializer(request)
            async for message in method(asked, context):
                call.reply(handler.response_serializer(message))
        else:
            message = await handler.unary_unary(handler.request_deserializer(request), context)
            call.reply(handler.response_serializer(message))
    except Aborted:
        call.finish(context.status)
    except asyncio.CancelledError:
        call.finish((grpc.StatusCode.CANCELLED, "cancelled", ()))
        raise
    except ConnectionError:
        call.finish(GONE)
    except Exception as error:
        call.finish((grpc.StatusCode.UNKNOWN, repr(error), ()))
        call.net.happens("broken", call.method, repr(error))
        raise
    else:
        call.finish(OK)


async def _requests(call: Call, handler: Any) -> AsyncIterator[Any]:
    while (data := await call.requests.get()) is not None:
        yield handler.request_deserializer(data)


class SyncError(grpc.RpcError):
    """A call that failed, as `grpc`'s own synchronous ones do."""

    def __init__(self, status: Status) -> None:
        super().__init__(status[1])
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status[0]

    def details(self) -> str:
        return self._status[1]

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._status[2]


class SyncStream(SyncError):
    """An answer in many messages: an iterator, and an error where it ends badly."""

    def __init__(self, call: Call, read: Callable[[bytes], Any]) -> None:
        super().__init__(OK)
        self._call, self._read = call, read

    def through(self, heard: Callable[[Any], Any]) -> SyncStream:
        """Have each message go through *heard*."""
        read = self._read
        self._read = lambda data: heard(read(data))
        return self

    def __iter__(self) -> SyncStream:
        return self

    def __next__(self) -> Any:
        data = await_only(self._call.replies.get())
        if data is not None:
            return self._read(data)
        if self.code() is not grpc.StatusCode.OK:
            raise self
        raise StopIteration

    def code(self) -> grpc.StatusCode:
        while self._call.status is None:
            await_only(self._call.replies.get())
        self._status = self._call.status
        return self._status[0]


class _Nothing:
    """May be awaited, or not."""

    def __await__(self) -> Iterator[None]:
        return iter(())


class Channel:
    """Stands for a channel to the orchestrator, synchronous or not, in the process that opened it."""

    def __init__(self, net: Network) -> None:
        process = PROCESS.get()
        assert process is not None
        self._net, self._process = net, process
        self._calls: list[Call] = []

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing: its streams are ended by whoever opened them."""

    def close(self) -> _Nothing:
        return _Nothing()

    def unary_unary(self, method: str, **codec: Any) -> Any:
        def ask(request: Any, timeout: float | None = None, metadata: Any = ()) -> Any:
            begun = self._begin(method, codec, request, timeout, metadata)
            stream = SyncStream(begun, codec["response_deserializer"])
            for reply in stream:
                if stream.code() is not grpc.StatusCode.OK:
                    raise stream
                return reply
            raise SyncError((grpc.StatusCode.INTERNAL, "no answer", ()))

        return ask

    def unary_stream(self, method: str, **codec: Any) -> Any:
        def ask(request: Any, timeout: float | None = None, metadata: Any = ()) -> Any:
            begun = self._begin(method, codec, request, timeout, metadata)
            return SyncStream(begun, codec["response_deserializer"])

        return ask

    def stream_stream(self, method: str, **codec: Any) -> Any:
        def ask(metadata: Any = ()) -> AioStream:
            return AioStream(self._begin(method, codec, None, None, metadata), codec)

        return ask

    def _begin(self, method: str, codec: Any, request: Any, timeout: float | None, metadata: Any) -> Call:
        data = None if request is None else codec["request_serializer"](request)
        call = open_call(self._net, self._process, method, data, timeout, metadata)
        dice = self._net.dice
        if data is not None and dice.chance(dice.repeats):
            ghost = open_call(self._net, self._process, method, data, timeout, metadata)
            self._net.loop.call_later(dice.about(1.0), ghost.cancel, context=self._net.loop.world)
        return call


def open_call(
    net: Network, client: Process, method: str, data: bytes | None, timeout: float | None, metadata: Any
) -> Call:
    """Send a request to whoever serves."""
    process, server = net.server or (None, None)
    call = Call(net, client, process or client, method)
    call.metadata, call.asked = tuple(metadata or ()), data
    if process is None or server is None or not process.alive:
        net.calls.pop(call)
        net.loop.call_later(net.dice.delay(), call.close, REFUSED, context=net.loop.world)
        return call
    if timeout is not None:
        late: Status = (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ())
        net.loop.call_later(max(timeout, 0.0), call.close, late, context=net.loop.world)
    call.up.push(server.accept, call, data, timeout)
    return call


def acquired_by(call: Call) -> tuple[str, ...]:
    """Return the groups that a call acquires."""
    if call.asked is None or "/Acquire" not in call.method:
        return ()
    request = pb.AcquireRequest.FromString(call.asked)
    return request.group, *request.also


class AioStream:
    """Stands for a stream of `grpc.aio`."""

    def __init__(self, call: Call, codec: Any) -> None:
        self._call, self._codec = call, codec

    async def read(self) -> Any:
        data = await self._call.replies.get()
        if data is not None:
            return self._codec["response_deserializer"](data)
        self._raise_if_broken()
        return grpc.aio.EOF

    async def write(self, message: Any) -> None:
        if self._call.status is not None:
            self._raise_if_broken()
            raise asyncio.InvalidStateError("the stream has ended")
        self._call.request(self._codec["request_serializer"](message))

    def cancel(self) -> None:
        self._call.cancel()

    def _raise_if_broken(self) -> None:
        assert self._call.status is not None
        code, details, trailing = self._call.status
        if code is not grpc.StatusCode.OK:
            none = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(code, none, grpc.aio.Metadata(*trailing), details)
