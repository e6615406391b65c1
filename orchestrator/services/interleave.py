"""Our own service for jobs, users and operators."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from slurm_interleave.client.core.errors import UnknownGroup
from slurm_interleave.client.core.names import parse_group_name, parse_job_id, parse_phase
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.auth import Caller, Gate
from slurm_interleave.orchestrator.core.commands import Place
from slurm_interleave.orchestrator.links import Links
from slurm_interleave.orchestrator.services.convert import slice_filter, wire_slice
from slurm_interleave.orchestrator.services.views import group_status
from slurm_interleave.sql.rows import Lease


class InterleaveService(rpc.InterleaveServicer):
    """Acquire, yield, status, slices."""

    def __init__(self, arbiter: Arbiter, gate: Gate, links: Links) -> None:
        self._arbiter = arbiter
        self._gate = gate
        self._links = links

    async def Acquire(self, request: pb.AcquireRequest, context: Any) -> AsyncIterator[pb.AcquireUpdate]:
        """Send each change of the place in the queue, then the grant."""
        job_id, group = parse_job_id(request.job_id), parse_group_name(request.group)
        self._gate.require_job(await self._caller(context), job_id)
        updates = self._arbiter.acquire(job_id, group, parse_phase(request.phase))
        async with contextlib.aclosing(updates):
            async for update in updates:
                yield _acquire_update(update)

    async def Yield(self, request: pb.YieldRequest, context: Any) -> pb.YieldReply:
        """End a lease."""
        job_id, group = parse_job_id(request.job_id), parse_group_name(request.group)
        self._gate.require_job(await self._caller(context), job_id)
        return pb.YieldReply(pending_waiters=await self._arbiter.yield_lease(job_id, group, request.epoch))

    async def GetStatus(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        """Say how the groups stand that the caller may see."""
        caller, core = await self._caller(context), self._arbiter.core
        names = [request.group] if request.group else sorted(core.state.groups)
        seen = [name for name in names if self._may_see(caller, name)]
        if request.group and not seen:
            raise UnknownGroup(f"group {request.group} is not known, or no job of yours is in it")
        return pb.StatusReply(
            groups=[group_status(core, name, self._arbiter.now()) for name in seen],
            nodes=[
                pb.NodeStatus(name=link.node, connected=True, since=link.since, devices=len(link.devices))
                for link in self._links.all()
            ],
        )

    async def ListSlices(self, request: pb.ListSlicesRequest, context: Any) -> AsyncIterator[pb.SlicePage]:
        """Send the slices that the caller may see, page by page."""
        caller = await self._caller(context)
        wanted = slice_filter(request, None if caller.operator else caller.uid)
        for page in await self._arbiter.slices(wanted):
            yield pb.SlicePage(slices=[wire_slice(row) for row in page])

    async def _caller(self, context: Any) -> Caller:
        return await self._gate.identify(dict(context.invocation_metadata()))

    def _may_see(self, caller: Caller, group: str) -> bool:
        members = self._arbiter.core.state.members
        keys = self._arbiter.core.state.groups.get(group, {})
        return bool(keys) and (caller.operator or any(members[key].uid == caller.uid for key in keys))


def _acquire_update(update: Place | Lease) -> pb.AcquireUpdate:
    if isinstance(update, Place):
        return pb.AcquireUpdate(queued=pb.Queued(ahead=update.ahead, reason=update.reason))
    granted = pb.Granted(
        epoch=update.epoch,
        waited_s=update.granted - update.requested,
        context_restored=update.restored,
        switch_s=update.switch_s,
    )
    return pb.AcquireUpdate(granted=granted)
