"""How inference servers are told to leave the devices and to come back: vLLM's and SGLang's own HTTP calls.

Sources: vLLM 0.22 to 0.33 `entrypoints/serve/dev` (VLLM_SERVER_DEV_MODE=1, --enable-sleep-mode), SGLang
0.5.23 `entrypoints/http_server.py` (--enable-memory-saver).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from slurm_interleave.node_agent.backends.endpoint_http import EndpointFailed, Reply, call
from slurm_interleave.node_agent.waits import CANCELLED, Stop

_TRIES_S = (0.1, 0.5)  # pauses between three tries
_LOOK_S = 0.05
_RUNNING = re.compile(
    r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? (\d+(?:\.\d+)?(?:e\+\d+)?)\b", re.MULTILINE
)
_BUSY = "requests are in flight still; yield when they are done"
_NOT_THERE = (404, 405)


class Dialect(Protocol):
    """One server, until *until* on the monotonic clock. All raise `EndpointFailed`."""

    async def drain(self, until: float, stop: Stop) -> None:
        """Have it finish or put off its requests; not longer than until *stop* is set."""

    async def suspend(self, until: float) -> None:
        """Have it leave the devices."""

    async def resume(self, until: float) -> None:
        """Have it come back and serve."""

    async def undo(self, until: float, failed: EndpointFailed | None) -> None:
        """Have it serve again after a suspend, which *failed* or not."""

    async def is_away(self, until: float) -> bool | None:
        """Return whether it has left the devices; None: it does not say."""


class _Server(Dialect):
    """One server by its URL."""

    def __init__(self, url: str, tags: Sequence[str], *, discard: bool) -> None:
        self._url = url
        self._tags = list(tags)
        self._discard = discard

    async def _get(self, path: str, until: float) -> Reply:
        return await call("GET", self._url, path, until - time.monotonic())

    async def _post(
        self,
        path: str,
        until: float,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        optional: bool = False,
    ) -> Reply:
        """Post, and again where that may help. *optional*: a server that has no such call is fine."""
        for pause in _TRIES_S:
            answer = await self._posted(path, until, query, body, optional)
            if isinstance(answer, Reply):
                return answer
            if not answer.again or time.monotonic() + pause > until:
                raise answer
            await asyncio.sleep(pause)
        answer = await self._posted(path, until, query, body, optional)
        if isinstance(answer, Reply):
            return answer
        raise answer

    async def _posted(
        self, path: str, until: float, query: Any, body: Any, optional: bool
    ) -> Reply | EndpointFailed:
        try:
            reply = await call("POST", self._url, path, until - time.monotonic(), query, body)
        except EndpointFailed as error:
            return error
        if reply.status < 300 or (optional and reply.status in _NOT_THERE):
            return reply
        hint = f"; {self.hint}" if reply.status in _NOT_THERE else ""
        text = f"{self._url}{path}: status {reply.status}: {reply.body.strip()[:200]}{hint}"
        return EndpointFailed(text, reached=False, again=reply.status >= 500 or reply.status == 409)

    async def _until_idle(self, look: Callable[[], Awaitable[str]], until: float, stop: Stop) -> None:
        """Return once *look* finds nothing in flight; else it says what is."""
        seen = ""
        while True:
            try:
                seen = await look()
            except EndpointFailed:
                if not seen or time.monotonic() + _LOOK_S < until:
                    raise  # else too little time was left for this look
            if not seen:
                return
            if stop.is_set():
                raise EndpointFailed(CANCELLED, reached=False)
            if time.monotonic() + _LOOK_S > until:
                raise EndpointFailed(f"{self._url}: {seen}", reached=False)
            await asyncio.sleep(_LOOK_S)

    hint: ClassVar[str] = ""


class Vllm(_Server):
    """vLLM: level 1 keeps the weights in host memory, level 2 drops them."""

    hint = "is VLLM_SERVER_DEV_MODE=1 set, and --enable-sleep-mode given?"

    async def drain(self, until: float, stop: Stop) -> None:
        """Wait until no request runs or waits: with some in flight a sleep kills older engines."""

        async def look() -> str:
            reply = await self._get("/metrics", until)
            if reply.status in _NOT_THERE:
                return ""  # metrics are off; newer servers wait by themselves, by mode=wait
            counts = _RUNNING.findall(reply.body) if reply.status < 300 else []
            if not counts:
                return _not_known(reply)
            count = sum(map(float, counts))
            return f"{count:.0f} {_BUSY}" if count else ""

        await self._until_idle(look, until, stop)

    async def suspend(self, until: float) -> None:
        """Sleep."""
        await self._post("/sleep", until, {"level": 2 if self._discard else 1, "mode": "wait"})

    async def resume(self, until: float) -> None:
        """Wake up; no tags: all."""
        await self._post("/wake_up", until, {"tags": self._tags} if self._tags else None)
        if not self._tags and await self.is_away(until):
            raise EndpointFailed(f"{self._url}: it was woken and sleeps still", reached=True)

    async def undo(self, until: float, failed: EndpointFailed | None) -> None:
        """Wake it up if it sleeps."""
        if failed is not None and not failed.reached and not await self.is_away(until):
            return
        await self.resume(until)

    async def is_away(self, until: float) -> bool | None:
        """Ask whether it sleeps."""
        reply = await self._get("/is_sleeping", until)
        answer = reply.json() if reply.status < 300 else None
        return bool(answer["is_sleeping"]) if isinstance(answer, dict) and "is_sleeping" in answer else None


def _not_known(metrics: Reply) -> str:
    text = f"/metrics: status {metrics.status}"
    if metrics.status < 300:
        text += " without vllm:num_requests_running (is --disable-log-stats given? leave it out)"
    return f"{text}: whether requests are in flight is not known"


class Sglang(_Server):
    """SGLang: whether weights are kept is fixed when it starts (--enable-weights-cpu-backup)."""

    hint = "is --enable-memory-saver given?"

    async def drain(self, until: float, stop: Stop) -> None:
        """Pause: running requests go back to its queue. A release refuses while some run."""
        paused = await self._post("/pause_generation", until, body={"mode": "retract"}, optional=True)
        if paused.status not in _NOT_THERE:
            return

        async def look() -> str:
            flushed = await call("POST", self._url, "/flush_cache", until - time.monotonic())
            return _BUSY if flushed.status >= 400 else ""

        await self._until_idle(look, until, stop)

    async def suspend(self, until: float) -> None:
        """Release the memory."""
        await self._post("/release_memory_occupation", until, body=self._body())

    async def resume(self, until: float) -> None:
        """Take the memory again, then go on with the requests."""
        await self._post("/resume_memory_occupation", until, body=self._body())
        try:
            await self._continue(until)
        except EndpointFailed as error:
            raise EndpointFailed(str(error), reached=True, back=True) from None

    async def undo(self, until: float, failed: EndpointFailed | None) -> None:
        """Take the memory again if it was released; to take what was not released is an error there."""
        if failed is None or failed.reached:
            await self.resume(until)
        else:
            await self._continue(until)

    async def is_away(self, _until: float) -> bool | None:
        """It does not say."""
        return None

    async def _continue(self, until: float) -> None:
        await self._post("/continue_generation", until, body={}, optional=True)

    def _body(self) -> dict[str, Any]:
        return {"tags": self._tags} if self._tags else {}


DIALECTS: dict[str, type[Vllm] | type[Sglang]] = {"vllm": Vllm, "sglang": Sglang}
