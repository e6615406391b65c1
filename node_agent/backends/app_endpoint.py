"""The backend of inference servers that suspend themselves when told over HTTP: all of a job, or none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.endpoint_dialects import DIALECTS, Dialect
from slurm_interleave.node_agent.backends.endpoint_http import EndpointFailed
from slurm_interleave.node_agent.backends.freed import Freed, look
from slurm_interleave.node_agent.backends.protocol import Backend, Mover, Target
from slurm_interleave.node_agent.contexts import Outcome
from slurm_interleave.node_agent.endpoints import Endpoints
from slurm_interleave.node_agent.waits import CANCELLED, Stop

Failures = Mapping[Dialect, EndpointFailed]
_NOT_BEGUN = EndpointFailed("", reached=False)
_FREED_S = 10.0  # memory may come free some time after the answer
# How much of an operation's time may have gone by at the end of each part; the rest is for undoing it.
_DRAINED, _MOVED, _DRAINED_AGAIN = 0.4, 0.7, 0.85


class EndpointMover(Mover):
    """Drains, then suspends the servers of a job side by side, and believes what the devices say."""

    name: ClassVar[str] = "app_endpoint"
    in_app: ClassVar[bool] = True
    in_process: ClassVar[bool] = True

    def __init__(
        self,
        endpoints: Endpoints,
        backend: Backend,
        tags: Sequence[str] = (),
        *,
        leaves_rest: bool = False,
        freed_s: float = _FREED_S,
    ) -> None:
        """*backend* sees whether the devices are free; *leaves_rest*: what stays is for another mover."""
        make = DIALECTS[endpoints.app]
        self._servers: list[Dialect] = [make(url, tags, discard=endpoints.discard) for url in endpoints.urls]
        self._discard = endpoints.discard
        self._backend = backend
        self._partial = bool(tags)
        self._leaves_rest = leaves_rest
        self._freed_s = freed_s

    @override
    async def snapshot(self, target: Target) -> Outcome:
        """Drain, suspend, and look whether the memory is free; if one fails, all serve again."""
        begun, limit = time.monotonic(), target.deadline_s
        freed = await Freed.begin(self._backend, target, partial=self._partial, leaves_rest=self._leaves_rest)
        until = begun + limit * _DRAINED
        busy = await _each(self._servers, lambda server: server.drain(until, target.stop))
        if busy or target.stop.is_set():
            none = dict.fromkeys(self._servers, _NOT_BEGUN)  # but those that did drain may be paused
            return await self._undone(freed, none, _words(busy) or CANCELLED, begun + limit)
        # What has begun is awaited, since nobody knows what becomes of a call that is cut off.
        failed = await _each(self._servers, lambda server: server.suspend(begun + limit * _MOVED))
        error = _words(failed) or await freed.verified(min(self._freed_s, limit * (1 - _MOVED) / 2))
        error = error or (CANCELLED if target.stop.is_set() else "")
        if error:
            return await self._undone(freed, failed, error, begun + limit)
        return freed.outcome()

    @override
    async def restore(self, target: Target) -> Outcome:
        """Have all serve again; if one cannot, those that are back drain and suspend once more."""
        begun, limit = time.monotonic(), target.deadline_s
        failed = await _each(self._servers, lambda server: server.resume(begun + limit * _MOVED))
        if failed or target.stop.is_set():
            return await self._left_again(failed, begun + limit * _DRAINED_AGAIN, begun + limit)
        seen = await look(self._backend, target.job)
        return Outcome(Context.RESIDENT, seen.bytes if seen else 0)

    @override
    def saved_size(self, resident: int) -> int:
        """Nothing where weights are dropped. vLLM rounds up, but what it drops of its cache is more."""
        return 0 if self._discard else resident

    @override
    async def discard(self, target: Target) -> Outcome:
        """Do nothing: the servers end with their job."""
        return Outcome(Context.NONE)

    async def _undone(self, freed: Freed, failed: Failures, why: str, until: float) -> Outcome:
        undoing = await _each(self._servers, lambda server: server.undo(until, failed.get(server)))
        if not undoing:
            return Outcome(Context.RESIDENT, error=why)
        if await freed.all_there():
            return Outcome(Context.RESIDENT, error=f"{why}; {_words(undoing)}")
        return Outcome(Context.FAULTED, error=f"{why}; and then, undoing it: {_words(undoing)}")

    async def _left_again(self, failed: Failures, drained: float, until: float) -> Outcome:
        async def leave(server: Dialect) -> None:
            await server.drain(drained, Stop())  # those that are back serve already
            await server.suspend(until)

        back = [server for server in self._servers if server not in failed or failed[server].back]
        again = await _each(back, leave)
        unsure = [server for server, error in failed.items() if error.reached and not error.back]
        away = await asyncio.gather(*(_is_away(server, until) for server in unsure))
        if again or not all(away):
            undoing = _words(again) or "whether it came back is not known"
            why = _words(failed) or CANCELLED
            return Outcome(Context.FAULTED, error=f"{why}; and then, undoing it: {undoing}")
        return Outcome(Context.SAVED, error=_words(failed) or CANCELLED)


async def _each(servers: Sequence[Dialect], work: Callable[[Dialect], Awaitable[None]]) -> Failures:
    """Do *work* with all servers at once and return those that failed."""

    async def one(server: Dialect) -> EndpointFailed | None:
        try:
            await work(server)
        except EndpointFailed as error:
            return error
        return None

    ended = await asyncio.gather(*map(one, servers))
    return {server: error for server, error in zip(servers, ended, strict=True) if error is not None}


async def _is_away(server: Dialect, until: float) -> bool:
    try:
        return bool(await server.is_away(until))
    except EndpointFailed:
        return False


def _words(failed: Failures) -> str:
    return "; ".join(map(str, failed.values()))
