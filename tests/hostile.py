"""Values that a broken or hostile peer may send, put into any message of any service."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

CALL_S = 0.15
# Python's exceptions, and a database that was given what it cannot take or a server that is gone.
CRASHES = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE})
_PLAIN = ("a", "b", "demo", "n1", "1", "1-1", "none", "resident", "saved", "faulted", "YIELDED")
_TEXTS = (
    "",
    "a" * 129,
    "a" * 100_000,
    "\0",
    "a\nb",
    "\U0010ffff",
    "'; DROP TABLE slices; --",
    "../../x",
    ",",
)
_WHOLE = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1, -1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1, -1, 1 << 50),
    FieldDescriptor.TYPE_UINT32: ((1 << 32) - 1,),
    FieldDescriptor.TYPE_UINT64: ((1 << 64) - 1,),
}
_REAL = (float("nan"), float("inf"), float("-inf"), -1.0, 1e308, 5e-324, 0.01)
_BYTES = (b"", b"\0", b"\xff" * 32, b"x" * 1000)
# gRPC itself says this where a caller went before his answer.
_CALLER_GONE = "ExecuteBatchError raised in core by servicer method"


class Hostile:
    """Draws messages and lines; the same for the same *seed*."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - dice, no secret

    def message(self, descriptor: Descriptor) -> Message:
        """Return a message with each field plain, hostile or left out."""
        made = GetMessageClass(descriptor)()
        taken = {self.draw.choice(oneof.fields).name for oneof in descriptor.oneofs}
        for field in descriptor.fields:
            left_out = field.containing_oneof is not None and field.name not in taken
            if not left_out and self.draw.random() < 0.8:
                self._set(made, field)
        return made

    def _set(self, made: Message, field: FieldDescriptor) -> None:
        value: Any = getattr(made, field.name)
        repeated = hasattr(value, "extend")  # protobuf's releases disagree on how a descriptor says so
        if field.message_type is None and not repeated:
            setattr(made, field.name, self.scalar(field))
        elif field.message_type is None:
            value.extend(self.scalar(field) for _ in range(self.draw.choice((0, 1, 1, 3, 2000))))
        elif repeated:
            value.extend(self.message(field.message_type) for _ in range(self.draw.choice((0, 1, 1, 3))))
        else:
            value.CopyFrom(self.message(field.message_type))

    def scalar(self, field: FieldDescriptor) -> Any:
        """Return a plain or hostile value for *field*."""
        plain, draw = self.draw.random() < 0.7, self.draw.choice
        if field.type == FieldDescriptor.TYPE_STRING:
            return draw(_PLAIN if plain else _TEXTS)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return draw(_BYTES)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return plain
        if field.type == FieldDescriptor.TYPE_ENUM:
            return draw((0, 1, 2, 99))
        if field.type in _WHOLE:
            return draw((0, 1)) if plain else draw(_WHOLE[field.type])
        return draw((0.0, 1.0)) if plain else draw(_REAL)

    def line(self, verbs: Iterable[str], keys: Iterable[str]) -> bytes:
        """Return a line for a socket of hooks."""
        values: list[Any] = [*_PLAIN, *_TEXTS, -1, 0, 1, 1 << 70, 1e400, float("nan"), None, True, [], {}]
        values += [[0], [1 << 70], [None], [[0]], "\ud800", ["\ud800"], {"a": 1}, "9" * 128]
        request = {key: self.draw.choice(values) for key in keys if self.draw.random() < 0.8}
        request["verb"] = self.draw.choice((*verbs, *verbs, *verbs, 7, "none"))
        return self.draw.choice((json.dumps(request).encode(), b"[" * 60_000, b'{"verb": ')) + b"\n"


async def call(channel: grpc.aio.Channel, method: MethodDescriptor, said: list[Any]) -> grpc.StatusCode:
    """Call *method* with *said*, messages or bytes, and return how it ended; cut after a moment."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    data = [each if isinstance(each, bytes) else each.SerializeToString() for each in said]
    made: Any
    if method.client_streaming:
        made = channel.stream_stream(path)(_each(data), timeout=CALL_S)
    elif method.server_streaming:
        made = channel.unary_stream(path)(data[0], timeout=CALL_S)
    else:
        made = channel.unary_unary(path)(data[0], timeout=CALL_S)
    if method.server_streaming:
        try:
            async for _ in made:
                pass
        except grpc.aio.AioRpcError:
            pass
        except asyncio.CancelledError:
            if not made.cancelled():  # gRPC cancels a call whose end crosses its next message
                raise
    code: grpc.StatusCode = await made.code()
    return code


async def _each(data: list[bytes]) -> AsyncIterator[bytes]:
    for each in data:
        yield each
    await asyncio.sleep(CALL_S)  # or the end of the stream ends the call before its answer


async def attack(
    channel: grpc.aio.Channel,
    services: Iterable[ServiceDescriptor],
    hostile: Hostile,
    times: int,
    first: Callable[[MethodDescriptor], list[Any]] = lambda _: [],
) -> set[grpc.StatusCode]:
    """Call each method *times* times; *first* gives what a stream begins with. Return how the calls ended."""
    ended = set()
    for method in (method for service in services for method in service.methods for _ in range(times)):
        said: list[Any] = [hostile.message(method.input_type) for _ in range(4)]
        if hostile.draw.random() < 0.1:
            said = [b"\xff\xff\xff"]
        if method.client_streaming and hostile.draw.random() < 0.8:
            said = [*first(method), *said]
        code = await call(channel, method, said)
        assert code not in CRASHES, f"{method.full_name}: {code} after {str(said)[:3000]}"
        ended.add(code)
    return ended


async def answer(path: Path, line: bytes) -> dict[str, Any]:
    """Return what the hooks' socket at *path* answers to *line*."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(line)
    reply: dict[str, Any] = json.loads(await asyncio.wait_for(reader.readline(), 30))
    writer.close()
    await writer.wait_closed()
    return reply


def tracebacks(records: Iterable[logging.LogRecord]) -> list[str]:
    """Return the lines of a log that a user should never see."""
    bad = [record for record in records if record.exc_info or record.levelno >= logging.ERROR]
    return [text for text in (record.getMessage() for record in bad) if not text.startswith(_CALLER_GONE)]
