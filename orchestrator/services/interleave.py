"""Our own service for jobs, users and operators."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from typing import Any

from google.protobuf.message import Message

from slurm_interleave.client.connect import Call
from slurm_interleave.client.core.errors import UnknownGroup, WrongState
from slurm_interleave.client.core.groups import DeclaredGroup
from slurm_interleave.client.core.names import parse_group_name, parse_job_id, parse_phase
from slurm_interleave.client.core.values import parse_seconds, parse_word
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.auth import Caller, Gate, user_name
from slurm_interleave.orchestrator.core.commands import Grant, Place
from slurm_interleave.orchestrator.core.events import CancelMoves, Draining, Revoke
from slurm_interleave.orchestrator.links import Link, Links
from slurm_interleave.orchestrator.placement.audit import Audit, Difference
from slurm_interleave.orchestrator.services.convert import call_name, slice_filter, time_left
from slurm_interleave.orchestrator.services.convert import groups as groups_of
from slurm_interleave.orchestrator.services.pages import slice_pages
from slurm_interleave.orchestrator.services.views import context_status, group_status, trespass_status
from slurm_interleave.orchestrator.shares import Shares
from slurm_interleave.sql.rows import Key, Part

PER_USER = 100  # watches and reports of one user who is no operator
_VERSION = version("slurm-interleave")


class InterleaveService(rpc.InterleaveServicer):
    """Acquire, yield, status, slices."""

    def __init__(
        self,
        arbiter: Arbiter,
        gate: Gate,
        links: Links,
        declared: Mapping[str, DeclaredGroup],
        audit: Audit | None = None,
    ) -> None:
        self._arbiter = arbiter
        self._gate = gate
        self._links = links
        self._declared = declared
        self._audit = audit
        self._shares = Shares(PER_USER, "watches or reports")

    async def Acquire(self, request: pb.AcquireRequest, context: Any) -> AsyncIterator[pb.AcquireUpdate]:
        """Send each change of the place in the queue, then the grant."""
        async with contextlib.aclosing(await self._acquire(request, context)) as updates:
            async for update in updates:
                yield _acquire_update(update, groups_of(request))

    async def AcquireSoon(self, request: pb.AcquireRequest, context: Any) -> pb.AcquireUpdate:
        """Answer with the grant, or with nothing when the caller's patience is over."""
        reply = pb.AcquireUpdate()
        patience_s = parse_seconds(request.patience_s, "patience_s")
        async for update in await self._acquire(request, context, patience_s):
            if isinstance(update, Grant):
                reply = _acquire_update(update, groups_of(request))
        return reply

    async def _acquire(
        self, request: pb.AcquireRequest, context: Any, patience_s: float | None = None
    ) -> AsyncGenerator[Place | Grant, None]:
        job_id = parse_job_id(request.job_id)
        groups = groups_of(request)
        method = "Acquire" if patience_s is None else "AcquireSoon"
        self._gate.require_job(await self._caller(method, request, context), job_id)
        return self._arbiter.acquire(
            job_id,
            groups,
            parse_phase(request.phase),
            time_left(context),
            independent=request.independent,
            patience_s=patience_s,
            silent=patience_s is not None,
            name=call_name(context),
        )

    async def Yield(self, request: pb.YieldRequest, context: Any) -> pb.YieldReply:
        """End a lease, or an acquire that was given up."""
        job_id, group = parse_job_id(request.job_id), parse_group_name(request.group)
        self._gate.require_job(await self._caller("Yield", request, context), job_id)
        if name := call_name(context):
            await self._arbiter.abandon(job_id, group, name)
            return pb.YieldReply()
        call = parse_word(request.call, "call") if request.call else ""
        pending = await self._arbiter.yield_lease(job_id, group, request.epoch, call, pause=request.pause)
        await asyncio.sleep(0)  # the next job's switch goes first
        return pb.YieldReply(pending_waiters=pending)

    async def Notices(self, request: pb.NoticesRequest, context: Any) -> AsyncIterator[pb.HolderNotice]:
        """Tell a holder who waits."""
        job_id, group = parse_job_id(request.job_id), parse_group_name(request.group)
        self._gate.require_job(await self._caller("Notices", request, context), job_id)
        key = self._arbiter.core.calls.find(job_id, group)
        state = self._arbiter.core.state
        with self._arbiter.listening(key) as news:
            # At once too, so that the caller knows that it is heard; who waits would count itself.
            waiting = state.book.depth(state.devices(key)) if key in state.leases else 0
            yield pb.HolderNotice(waiting=waiting)
            while True:
                notice = await news.get()
                ahead = self._arbiter.wall() - self._arbiter.now()
                yield pb.HolderNotice(waiting=notice.waiting, by=notice.by and notice.by + ahead)

    async def Revoke(self, request: pb.RevokeRequest, context: Any) -> pb.RevokeReply:
        """Take a lease back."""
        job_id, group = parse_job_id(request.job_id), parse_group_name(request.group)
        self._gate.require_operator(await self._caller("Revoke", request, context))
        await self._arbiter.tell(Revoke(self._arbiter.now(), job_id, group))
        return pb.RevokeReply()

    async def Clear(self, request: pb.ClearRequest, context: Any) -> pb.ClearReply:
        """End a fault."""
        job_id, group = parse_job_id(request.job_id), parse_group_name(request.group)
        self._gate.require_job(await self._caller("Clear", request, context), job_id)
        lost = await self._arbiter.clear(job_id, group, keep=request.keep, within_s=time_left(context))
        return pb.ClearReply(discarded=map(context_status, lost))

    async def CancelOperation(
        self, request: pb.CancelOperationRequest, context: Any
    ) -> pb.CancelOperationReply:
        """Have the moves of a job's device state stopped, and say where it is when they have ended."""
        job_id, group = parse_job_id(request.job_id), parse_group_name(request.group)
        self._gate.require_operator(await self._caller("CancelOperation", request, context))
        key = self._arbiter.core.calls.find(job_id, group)
        await self._arbiter.tell(CancelMoves(self._arbiter.now(), *key))
        parts = await self._arbiter.settled(key, time_left(context))
        return pb.CancelOperationReply(contexts=map(context_status, parts))

    async def Drain(self, request: pb.DrainRequest, context: Any) -> AsyncIterator[pb.DrainUpdate]:
        """Have the processes of a node's jobs saved, one job after the other."""
        self._gate.require_operator(await self._caller("Drain", request, context))
        state, node = self._arbiter.core.state, request.node
        if node not in state.nodes_up:
            raise WrongState(f"node {node!r}: its agent is not connected, so nothing can be saved there")
        for part in list(state.parts_on(node)):
            key = Key(part.job_id, part.group)
            if refusal := self._cannot_be_drained(part):
                yield pb.DrainUpdate(job_id=part.job_id, error=refusal)
            elif key in state.members and not state.members[key].over:
                yield await self._drain(node, part)

    def _cannot_be_drained(self, part: Part) -> str:
        state, switches = self._arbiter.core.state, self._arbiter.core.switches
        members = list(state.jobs.get(part.job_id, ()))
        # Also on other nodes: processes that go on somewhere else must not believe that they hold.
        if state.leases_of(part.job_id) or any(each in switches.active for each in members):
            return "it holds its devices now; try again when it has yielded them"
        # The end of an order that was given before would be heard after what the drain has done since.
        if any(switches.moves(each) for each in members):
            return "its device state is being moved for another job's turn; try again when that has begun"
        others = {node for each in members for node in state.parts[each] if node != part.node}
        if others:
            return f"it runs on node {', '.join(sorted(others))} too; one node alone cannot be saved"
        return ""

    async def _drain(self, node: str, part: Part) -> pb.DrainUpdate:
        """Have a job's processes saved. Until they are gone, or go on, it gets no turn.

        Its agent says when that is: at once, or in its next hello.
        """
        await self._arbiter.tell(Draining(self._arbiter.now(), part.job_id, node, True))
        return await self._links.drain(node, part.job_id, part.attempt)

    async def Watch(self, request: pb.StatusRequest, context: Any) -> AsyncIterator[pb.WatchUpdate]:
        """Send the groups that the caller may see, and then those that have changed."""
        caller, core = await self._caller("Watch", request, context), self._arbiter.core
        group = parse_group_name(request.group) if request.group else ""
        with self._share(caller), self._arbiter.watching() as news:
            first, told = True, set[str]()
            while True:
                wanted = {name for name in await news.next() if group in ("", name)}
                seen = sorted(name for name in wanted if self._may_see(caller, name))
                # Whoever never saw a group does not learn its name from its end.
                gone = sorted(wanted.intersection(told).difference(seen))
                told = told.union(seen).difference(gone)
                now = self._arbiter.now()
                if first or seen or gone:
                    yield pb.WatchUpdate(groups=[group_status(core, name, now) for name in seen], gone=gone)
                first = False

    async def GetStatus(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        """Say how the groups stand that the caller may see."""
        return self.status(await self._caller("GetStatus", request, context), request.group)

    def status(self, caller: Caller, group: str = "") -> pb.StatusReply:
        """Return how *group* stands, or all that *caller* may see. Raises `UnknownGroup`, `BadName`."""
        core = self._arbiter.core
        known = sorted({*core.state.groups, *self._declared})
        names = [parse_group_name(group)] if group else known
        seen = [name for name in names if self._may_see(caller, name)]
        if group and not seen:
            raise UnknownGroup(f"group {group} is not known, or no job of yours is in it")
        return pb.StatusReply(
            groups=[group_status(core, name, self._arbiter.now()) for name in seen],
            nodes=[self._node(link, caller) for link in self._links.all()],
            differences=[pb.BookDifference(**vars(one)) for one in self._differences(caller)],
            version=_VERSION,
            now=self._arbiter.now(),
        )

    def _differences(self, caller: Caller) -> list[Difference]:
        return self._audit.differences if self._audit is not None and caller.operator else []

    def _node(self, link: Link, caller: Caller) -> pb.NodeStatus:
        trespasses = self._arbiter.core.trespasses
        members = self._arbiter.core.state.members
        status = pb.NodeStatus(name=link.node, connected=True, since=link.since, devices=len(link.devices))
        if caller.operator:
            status.trespass_count = trespasses.counts.get(link.node, 0)
        for seen in trespasses.on(link.node):
            member = members.get(seen.key) if seen.key is not None else None
            if caller.operator or (member is not None and member.uid == caller.uid):
                status.trespasses.append(trespass_status(seen))
        return status

    async def ListSlices(self, request: pb.ListSlicesRequest, context: Any) -> AsyncIterator[pb.SlicePage]:
        """Send the slices that the caller may see, page by page."""
        caller = await self._caller("ListSlices", request, context)
        with self._share(caller):
            async for page in self.slices(caller, request):
                yield page

    async def slices(self, caller: Caller, request: pb.ListSlicesRequest) -> AsyncIterator[pb.SlicePage]:
        """Yield the same for *caller*."""
        wanted = slice_filter(request, None if caller.operator else caller.uid)
        async with contextlib.aclosing(self._arbiter.slices(wanted, summed=request.summed)) as pages:
            async for page in pages:
                for part in slice_pages(page):
                    yield part

    async def _caller(self, method: str, request: Message, context: Any) -> Caller:
        return await self._gate.identify(
            dict(context.invocation_metadata()), Call(f"Interleave/{method}", request)
        )

    def _share(self, caller: Caller) -> AbstractContextManager[None]:
        """Count one of the calls that cost with each change, or read the database. Raises `TooMany`."""
        return nullcontext() if caller.operator else self._shares.one_of(f"uid {caller.uid}")

    def _may_see(self, caller: Caller, group: str) -> bool:
        members = self._arbiter.core.state.members
        keys = self._arbiter.core.state.groups.get(group, {})
        if not keys and group in self._declared:
            return caller.operator or self._declared[group].open_to(user_name(caller.uid), caller.uid or 0)
        return bool(keys) and (caller.operator or any(members[key].uid == caller.uid for key in keys))


def _acquire_update(update: Place | Grant, groups: Sequence[str]) -> pb.AcquireUpdate:
    """Return what the caller is told who has asked for *groups*, some of which his job may have held."""
    if isinstance(update, Place):
        queued = pb.Queued(ahead=update.ahead, reason=update.reason, expected_s=update.expected_s)
        return pb.AcquireUpdate(queued=queued)
    lease, epochs = update.lease, {one.group: one.told or one.epoch for one in (update.lease, *update.also)}
    granted = pb.Granted(
        epoch=epochs.pop(groups[0], 0),
        waited_s=lease.granted - lease.requested,
        context_restored=lease.restored,
        switch_s=lease.switch_s,
        also=[pb.GroupLease(group=group, epoch=epochs[group]) for group in groups if group in epochs],
    )
    return pb.AcquireUpdate(granted=granted)
