"""An orchestrator that answers jobs as the test says, on a real gRPC server."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc

from slurm_interleave.client.connect import ERROR_KEY
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

Answer = Callable[[Any], Iterator[pb.AcquireUpdate]]


class FakeOrchestrator(rpc.InterleaveServicer):
    """Grants at once, unless the test has put other answers into *acquires* and *yields*."""

    def __init__(self) -> None:
        self.address = free_address()
        self.acquires: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.yields: queue.SimpleQueue[Callable[[Any], None]] = queue.SimpleQueue()
        self.asked: list[pb.AcquireRequest] = []
        self.yielded: list[int] = []
        self.paused: list[int] = []  # those of them whose phase goes on
        self.tokens: set[str] = set()
        self.epoch = 0
        self.heard_yield = threading.Event()
        self.ended: list[tuple[str, int, str]] = []  # what was yielded: group, epoch, acquire
        self.first_notice = pb.HolderNotice()
        self.notices: queue.SimpleQueue[pb.HolderNotice | None] = (
            queue.SimpleQueue()
        )  # None breaks the stream
        self.calls: Counter[str] = Counter()
        self.soon: queue.SimpleQueue[Callable[[Any], Any]] = queue.SimpleQueue()
        self._server: grpc.Server | None = None

    def start(self) -> FakeOrchestrator:
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=(("grpc.so_reuseport", 0),))
        rpc.add_InterleaveServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(self.address)
        self._server.start()
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def Acquire(self, request: pb.AcquireRequest, context: Any) -> Iterator[pb.AcquireUpdate]:
        self.calls["Acquire"] += 1
        self.asked.append(request)
        self.tokens.add(dict(context.invocation_metadata()).get("interleave-token", ""))
        try:
            answer = self.acquires.get_nowait()
        except queue.Empty:
            yield self.granted(request.also)
        else:
            yield from answer(context)

    def AcquireSoon(self, request: pb.AcquireRequest, context: Any) -> pb.AcquireUpdate:
        del request  # all is decided in Acquire
        self.calls["AcquireSoon"] += 1
        with contextlib.suppress(queue.Empty):
            list(self.soon.get_nowait()(context))
        return pb.AcquireUpdate()

    def Yield(self, request: pb.YieldRequest, context: Any) -> pb.YieldReply:
        with contextlib.suppress(queue.Empty):
            self.yields.get_nowait()(context)
        self.ended.append((request.group, request.epoch, request.call))
        self.yielded.append(request.epoch)
        self.paused += [request.epoch] * request.pause
        self.heard_yield.set()
        return pb.YieldReply(pending_waiters=2)

    def Notices(self, request: pb.NoticesRequest, context: Any) -> Iterator[pb.HolderNotice]:
        del request
        context.add_callback(lambda: self.notices.put(None))
        yield self.first_notice
        while (notice := self.notices.get()) is not None:
            yield notice

    def granted(self, also: Sequence[str] = (), **said: Any) -> pb.AcquireUpdate:
        self.epoch += 1 + len(also)
        others = [pb.GroupLease(group=group, epoch=self.epoch - n) for n, group in enumerate(also)]
        epoch = self.epoch - len(also)
        return pb.AcquireUpdate(granted=pb.Granted(epoch=epoch, also=others, **said))


def refusal(code: grpc.StatusCode, text: str, name: str = "") -> Callable[[Any], Any]:
    """Return an answer that refuses the call with an error class of ours, or with none."""

    def answer(context: Any) -> Iterator[pb.AcquireUpdate]:
        context.set_trailing_metadata(((ERROR_KEY, name),) if name else ())
        context.abort(code, text)
        yield pb.AcquireUpdate()

    return answer


def refuse_yield(code: grpc.StatusCode, text: str, name: str = "") -> Callable[[Any], None]:
    """Return the same for a yield."""
    return lambda context: list(refusal(code, text, name)(context)) and None


def queued(ahead: int, reason: str = "", expected_s: float | None = None) -> pb.AcquireUpdate:
    return pb.AcquireUpdate(queued=pb.Queued(ahead=ahead, reason=reason, expected_s=expected_s))


def free_address() -> str:
    """Return an address of loopback at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
