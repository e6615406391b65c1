"""Who asks for the page, what he sees, and how often that is looked at."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from slurm_interleave.client.cli import rows, times
from slurm_interleave.client.connect import Call
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.auth import Caller, Gate, user_name
from slurm_interleave.orchestrator.services.interleave import InterleaveService
from slurm_interleave.orchestrator.web import page
from slurm_interleave.orchestrator.web.config import WebConfig
from slurm_interleave.orchestrator.web.links import PageLinks
from slurm_interleave.orchestrator.web.server import Answer, HttpServer

_DAYS_S = 6 * 86_400.0  # before today
_TURNS_MAX = 1000  # of the last hour; the latest
_FRESH_S = 5.0
_KEPT_MAX = 64
_HTML = ("Content-Type", "text/html; charset=utf-8")
_HEADERS = (_HTML, ("Content-Security-Policy", page.POLICY))


class Pages(rpc.PagesServicer):
    """Gives links to the page, and answers those who follow one."""

    def __init__(
        self,
        config: WebConfig,
        cluster: str,
        gate: Gate,
        service: InterleaveService,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._gate = gate
        self._service = service
        self._clock = clock
        self._links = PageLinks(config.hours * 3600.0, clock)
        self._kept: dict[Caller, tuple[float, str]] = {}
        self._making = asyncio.Lock()
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Serve the page and give the port."""
        async with HttpServer(self.respond).serving(self._config.listen) as self.port:
            yield self.port

    async def OpenPage(self, request: pb.OpenPageRequest, context: Any) -> pb.OpenPageReply:
        """Give the caller a link."""
        metadata = dict(context.invocation_metadata())
        caller = await self._gate.identify(metadata, Call("Pages/OpenPage", request))
        host = self._config.listen.rpartition(":")[0]
        base = self._config.url.rstrip("/") or f"http://{host}:{self.port}"
        secret, until = self._links.make(caller)
        return pb.OpenPageReply(url=f"{base}/{secret}/", until=until, loopback=not self._config.url)

    async def respond(self, path: str) -> Answer:
        """Return the page that *path* names by its secret."""
        secret = path.partition("?")[0].strip("/").rpartition("/")[2]
        caller = self._links.caller(secret)
        if caller is None:
            return Answer(404, page.unknown(), _HEADERS)
        return Answer(200, await self._page(caller), _HEADERS)

    async def _page(self, caller: Caller) -> str:
        """Return the page of *caller*: one is made at a time, and lasts for a moment."""
        async with self._making:
            made, text = self._kept.get(caller, (0.0, ""))
            if not 0 <= self._clock() - made < _FRESH_S:
                text = await self._make(caller)
                self._kept.pop(caller, None)
                self._kept[caller] = (self._clock(), text)
                if len(self._kept) > _KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
            return text

    async def _make(self, caller: Caller) -> str:
        status = self._service.status(caller)
        hour = deque[pb.Slice](maxlen=_TURNS_MAX)
        async for found in self._service.slices(caller, pb.ListSlicesRequest(start=status.now - page.HOUR_S)):
            hour.extend(found.slices)
        # Whole days, of which there are sums; days are those of the calendar here.
        since = times.midnight(status.now - _DAYS_S)
        week = [
            rows.of_day(day)
            async for found in self._service.slices(caller, pb.ListSlicesRequest(start=since, summed=True))
            for day in found.days
        ]
        seen = page.Seen(self._cluster, _who(caller), status, list(hour), week)
        return await asyncio.to_thread(page.render, seen)


def _who(caller: Caller) -> str:
    if caller.operator:
        return "all jobs"
    return f"jobs of {user_name(caller.uid) or caller.uid}"
