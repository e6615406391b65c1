"""The one stream to the orchestrator: opened anew when it breaks, begun with the whole truth."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from slurm_interleave.client.connect import Call, Metadata, credentials, domain_error, open_aio_channel
from slurm_interleave.client.core.errors import InterleaveError
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.node_agent.config import AgentConfig

log = logging.getLogger(__name__)
_BACK_OFF_S = (0.1, 2.0)  # first and longest


def back_offs(draw: Callable[[], float] = random.random) -> Iterator[float]:
    """Yield the seconds to wait before each try: doubling, each cut by a random part of its half."""
    longest = _BACK_OFF_S[0]
    while True:
        yield longest * (1 - draw() / 2)
        longest = min(_BACK_OFF_S[1], longest * 2)


class Link:
    """Sends what happens on the node, and hands orders on.

    What happens while the link is down is part of the next `Hello`. Only results of operations are kept for
    after it, since a `Hello` does not have them.
    """

    def __init__(
        self, config: AgentConfig, hello: Callable[[], pb.Hello], take: Callable[[pb.AgentOrder], None]
    ) -> None:
        """*hello* tells the truth at the moment of a connect, *take* gets each order."""
        self._config = config
        self._hello = hello
        self._take = take
        self._outbox: deque[pb.AgentMessage] = deque()
        self._something = asyncio.Event()
        self.connected = asyncio.Event()

    def send(self, message: pb.AgentMessage) -> None:
        """Queue *message*."""
        self._outbox.append(message)
        self._something.set()

    async def run(self) -> None:
        """Keep the stream open until cancelled."""
        waits, said = back_offs(), ""
        while True:
            try:
                await self._connect()
                reason = "the orchestrator ended the stream"
            except grpc.aio.AioRpcError as error:
                reason = str(domain_error(error, self._config.orchestrator))
            except (InterleaveError, OSError) as error:
                reason = str(error)
            if self.connected.is_set():
                self.connected.clear()
                waits, said = back_offs(), ""
            if reason != said:
                log.warning("link.lost", extra={"orchestrator": self._config.orchestrator, "reason": reason})
                said = reason
            await asyncio.sleep(next(waits))

    async def _connect(self) -> None:
        """Hold one stream until it ends. Raises `AioRpcError`, `InterleaveError`."""
        config = self._config
        async with open_aio_channel(config.orchestrator) as channel:
            call = Call("AgentLink/Connect", node=config.node)
            metadata: Metadata = await asyncio.to_thread(credentials, call, config.auth, config.munge_socket)
            stream: Any = rpc.AgentLinkStub(channel).Connect(metadata=metadata)
            sender = asyncio.create_task(self._send_all(stream))
            try:
                while (order := await stream.read()) is not grpc.aio.EOF:
                    self._receive(order)
            finally:
                sender.cancel()
                stream.cancel()
                # Not `await sender`: its end must not be taken for one of this task, or the other way round.
                await asyncio.wait({sender})
                if not sender.cancelled():
                    sender.exception()  # the stream's own, told by `read` already

    def _receive(self, order: pb.AgentOrder) -> None:
        self._take(order)
        if order.HasField("welcome"):
            log.info(
                "link.ready",
                extra={"orchestrator": self._config.orchestrator, "cluster": order.welcome.cluster},
            )
            self.connected.set()

    async def _send_all(self, stream: Any) -> None:
        # One moment: what is queued now is older than this Hello.
        hello = pb.AgentMessage(hello=self._hello())
        self._outbox = deque(message for message in self._outbox if message.done)
        await stream.write(hello)
        while True:
            while self._outbox:
                # Kept until they are sent; results that wait one behind the other go together.
                part = list(itertools.takewhile(lambda each: each.done, self._outbox)) or [self._outbox[0]]
                message = pb.AgentMessage()
                for each in part:
                    message.MergeFrom(each)
                await stream.write(message)
                for _ in part:
                    self._outbox.popleft()
            self._something.clear()
            await self._something.wait()
