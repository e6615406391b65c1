"""An orchestrator that serves what a test gives it, over real gRPC."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc

PAGE = 3


class GivenOrchestrator(rpc.InterleaveServicer, rpc.PagesServicer, rpc.PairingServicer):
    """Answers with *slices* and *reply*, or with *refusal*; remembers what it was asked."""

    def __init__(
        self,
        slices: Sequence[pb.Slice] = (),
        reply: pb.StatusReply | None = None,
        refusal: tuple[grpc.StatusCode, str, str] | None = None,
    ) -> None:
        self.slices = list(slices)
        self.reply = reply or pb.StatusReply()
        self.refusal = refusal
        self.days: list[pb.DaySum] = []
        self.discarded: list[pb.ContextStatus] = []
        self.contexts: list[pb.ContextStatus] = []
        self.page = pb.OpenPageReply()
        self.explanation: pb.ExplainReply | None = None
        self.drained: list[pb.DrainUpdate] = []
        self.news: queue.Queue[pb.WatchUpdate | None] = queue.Queue()  # None ends a stream
        self.goes_on: threading.Event | None = None  # awaited after the first page of slices
        self.deadlines: list[float | None] = []  # of those calls, in seconds from then on
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str]] = []

    def ListSlices(
        self, request: pb.ListSlicesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.SlicePage]:
        self._note(request, context)
        self.deadlines.append(context.time_remaining())
        if request.summed and self.days:
            yield pb.SlicePage(days=self.days)
            return
        for first in range(0, len(self.slices), PAGE):
            yield pb.SlicePage(slices=self.slices[first : first + PAGE])
            if self.goes_on is not None:
                self.goes_on.wait(30)

    def GetStatus(self, request: pb.StatusRequest, context: grpc.ServicerContext) -> pb.StatusReply:
        self._note(request, context)
        return self.reply

    def Watch(self, request: pb.StatusRequest, context: grpc.ServicerContext) -> Iterator[pb.WatchUpdate]:
        self._note(request, context)
        context.add_callback(lambda: self.news.put(None))
        yield pb.WatchUpdate(groups=self.reply.groups)
        while (update := self.news.get()) is not None:
            yield update

    def Revoke(self, request: pb.RevokeRequest, context: grpc.ServicerContext) -> pb.RevokeReply:
        self._note(request, context)
        return pb.RevokeReply()

    def Clear(self, request: pb.ClearRequest, context: grpc.ServicerContext) -> pb.ClearReply:
        self._note(request, context)
        return pb.ClearReply(discarded=[] if request.keep else self.discarded)

    def CancelOperation(
        self, request: pb.CancelOperationRequest, context: grpc.ServicerContext
    ) -> pb.CancelOperationReply:
        self._note(request, context)
        return pb.CancelOperationReply(contexts=self.contexts)

    def Drain(self, request: pb.DrainRequest, context: grpc.ServicerContext) -> Iterator[pb.DrainUpdate]:
        self._note(request, context)
        yield from self.drained

    def OpenPage(self, request: pb.OpenPageRequest, context: grpc.ServicerContext) -> pb.OpenPageReply:
        self._note(request, context)
        return self.page

    def Explain(self, request: pb.ExplainRequest, context: grpc.ServicerContext) -> pb.ExplainReply:
        self._note(request, context)
        return self.explanation or pb.ExplainReply()

    def _note(self, request: Any, context: grpc.ServicerContext) -> None:
        self.requests.append(request)
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
        if self.refusal:
            code, text, name = self.refusal
            context.set_trailing_metadata((("interleave-error", name),) if name else ())
            context.abort(code, text)


@contextmanager
def served(orchestrator: GivenOrchestrator, address: str = "127.0.0.1:0") -> Iterator[str]:
    """Serve *orchestrator* on a free port of loopback, or at *address*; yield its address."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2), options=(("grpc.so_reuseport", 0),))
    rpc.add_InterleaveServicer_to_server(orchestrator, server)  # type: ignore[no-untyped-call]
    if orchestrator.page.url:
        rpc.add_PagesServicer_to_server(orchestrator, server)  # type: ignore[no-untyped-call]
    if orchestrator.explanation is not None:
        rpc.add_PairingServicer_to_server(orchestrator, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(address)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def free_address() -> str:
    """Return an address of loopback at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
