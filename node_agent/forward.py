"""Passes the v1alpha1 lock service of a job's socket on to the orchestrator, with the job's token.

Existing clients send no credentials and do not try again. So the token is added here, and an outage of the
orchestrator is waited out here, as long as the caller's deadline allows. Answers pass unread; of a request
the name of the group is read, since a job may have two for one. A caller who goes in the middle of an acquire
may have been granted his devices at that moment: a yield follows him, whose message has the same fields.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Any

import grpc

from slurm_interleave.client.connect import CALL_KEY, Metadata, token_metadata
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as timeslice
from slurm_interleave.node_agent.names import Names
from slurm_interleave.node_agent.state import Job

log = logging.getLogger(__name__)
_SERVICE = timeslice.DESCRIPTOR.services_by_name["TimeSliceOrchestratorService"]
_REQUESTS = {
    f"/{_SERVICE.full_name}/{method.name}": getattr(timeslice, method.input_type.name)
    for method in _SERVICE.methods
}
# What an orchestrator answers that goes away or comes back; each of these calls may be repeated.
_OUTAGE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
_AGAIN_S = 0.2
_ACQUIRE, _YIELD = (f"/{_SERVICE.full_name}/{name}" for name in ("Acquire", "Yield"))
_ABANDON_S = 10.0
_ABANDON_MAX = 32  # acquires of a job that were given up, of which the orchestrator is to hear still


class Forwarder(grpc.GenericRpcHandler):
    """Forwards each method of the service for one job."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        job: Job,
        registered: asyncio.Event,
        asked: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call over *channel*, once *registered* says that the orchestrator knows *job*.

        *asked* is told of each acquire, and tells whether all have ended who were there before.
        """
        self._names = Names(job.request.group, job.request.role)
        self._asked = asked
        self._channel = channel
        self._metadata = token_metadata(job.token)
        self._registered = registered
        self._abandoning: set[asyncio.Task[None]] = set()

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a method of that service, None for others."""
        method = handler_call_details.method
        if method not in _REQUESTS:
            return None

        async def forward(request: Any, context: grpc.aio.ServicerContext[Any, bytes]) -> bytes:
            name = getattr(request, "group_id", "")
            if name:
                request.group_id = self._names.group(name)
            if method == _ACQUIRE:
                return await self._acquire(name, request, context)
            if method == _YIELD:
                return await self._yield(name, request, context)
            return await self._forward(method, request.SerializeToString(), context, self._metadata)

        return grpc.unary_unary_rpc_method_handler(forward, _REQUESTS[method].FromString)

    async def _acquire(self, name: str, asked: timeslice.AcquireRequest, context: Any) -> bytes:
        if name and not asked.group_id:
            return timeslice.AcquireResponse(success=True).SerializeToString()
        if self._asked():
            self._names.all_gone()
        while len(self._abandoning) >= _ABANDON_MAX:
            await asyncio.wait(self._abandoning, return_when=asyncio.FIRST_COMPLETED)
        named = (*self._metadata, (CALL_KEY, uuid.uuid4().hex))
        request = asked.SerializeToString()
        try:
            reply = await self._forward(_ACQUIRE, request, context, named)
        except asyncio.CancelledError:
            task = asyncio.create_task(self._abandon(request, named))
            self._abandoning.add(task)
            task.add_done_callback(self._abandoning.discard)
            raise
        self._names.acquired(name)
        return reply

    async def _yield(self, name: str, asked: timeslice.YieldRequest, context: Any) -> bytes:
        if not self._names.ends(name) or (name and not asked.group_id):
            self._names.yielded(name)
            return timeslice.YieldResponse(success=True, snapshot_deferred=True).SerializeToString()
        reply = await self._forward(_YIELD, asked.SerializeToString(), context, self._metadata)
        self._names.yielded(name)
        return reply

    async def _abandon(self, request: bytes, named: Metadata) -> None:
        """Give back what was granted to a caller who is gone."""
        call: Any = self._channel.unary_unary(_YIELD)
        while True:
            try:
                await call(request, metadata=named, timeout=_ABANDON_S, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if error.code() not in _OUTAGE | {grpc.StatusCode.DEADLINE_EXCEEDED}:
                    return
            else:
                return
            await asyncio.sleep(_AGAIN_S)

    async def _forward(self, method: str, request: bytes, context: Any, metadata: Metadata) -> bytes:
        # A deadline or a cancel of the caller cancels this coroutine, and by that the call below.
        await self._registered.wait()
        call: Any = self._channel.unary_unary(method)
        while True:
            try:
                left = context.time_remaining()
                reply: bytes = await call(request, metadata=metadata, timeout=left, wait_for_ready=True)
                return reply
            except grpc.aio.AioRpcError as error:
                if error.code() not in _OUTAGE:
                    trailing = tuple(error.trailing_metadata() or ())
                    await context.abort(error.code(), error.details() or "", trailing)
                log.info("forward.again", extra={"method": method, "reason": error.details()})
            await asyncio.sleep(_AGAIN_S)
