"""The v1alpha1 lock service, for clients that exist already. Facts of the wire: tests/wire_contract.py."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from slurm_interleave.client.connect import Call
from slurm_interleave.client.core.errors import NotAuthenticated, UnknownGroup
from slurm_interleave.client.core.names import parse_group_name, parse_job_id
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as pb
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as rpc
from slurm_interleave.orchestrator.arbiter import Arbiter
from slurm_interleave.orchestrator.auth import Caller, Gate
from slurm_interleave.orchestrator.core.status import GroupState
from slurm_interleave.orchestrator.services.convert import call_name, time_left
from slurm_interleave.sql.rows import Part

_GROUP_STATE = {
    GroupState.UNKNOWN: pb.GroupStatus.STATE_UNKNOWN,
    GroupState.IDLE: pb.GroupStatus.STATE_IDLE,
    GroupState.WARM: pb.GroupStatus.STATE_IDLE_YIELDED,
    GroupState.LOCKED: pb.GroupStatus.STATE_LOCKED,
    GroupState.SWITCHING: pb.GroupStatus.STATE_SWITCHING,
}
_JOB_STATE = {
    Context.NONE: pb.SnapshotAgentJobState.STATE_IDLE,
    Context.RESIDENT: pb.SnapshotAgentJobState.STATE_RUNNING,
    Context.SAVING: pb.SnapshotAgentJobState.STATE_TRANSITIONING,
    Context.RESTORING: pb.SnapshotAgentJobState.STATE_TRANSITIONING,
    Context.SAVED: pb.SnapshotAgentJobState.STATE_SAVED,
    Context.FAULTED: pb.SnapshotAgentJobState.STATE_FAULTED,
    Context.UNKNOWN: pb.SnapshotAgentJobState.STATE_UNSPECIFIED,
}


class TimeSliceService(rpc.TimeSliceOrchestratorServiceServicer):
    """One lock a group, as that wire has it."""

    def __init__(self, arbiter: Arbiter, gate: Gate, *, open_to_all: bool) -> None:
        self._arbiter = arbiter
        self._gate = gate
        self._open = open_to_all

    async def Acquire(self, request: pb.AcquireRequest, context: Any) -> pb.AcquireResponse:
        """Wait for the grant."""
        job_id, group = parse_job_id(request.job_id), parse_group_name(request.group_id)
        self._gate.require_job(await self._caller("Acquire", request, context), job_id)
        began = self._arbiter.now()
        lease = await self._arbiter.acquire_lease(job_id, group, time_left(context), call_name(context))
        # A lease that the job held already was not granted by this call.
        fresh = lease.granted >= began
        return pb.AcquireResponse(
            success=True,
            waited_ms=round((self._arbiter.now() - began) * 1000),
            context_restored=fresh and lease.restored,
        )

    async def Yield(self, request: pb.YieldRequest, context: Any) -> pb.YieldResponse:
        """End the lease; the context stays on the device while nobody waits."""
        job_id, group = parse_job_id(request.job_id), parse_group_name(request.group_id)
        self._gate.require_job(await self._caller("Yield", request, context), job_id)
        if name := call_name(context):  # the agent says it of a caller on a job's socket
            await self._arbiter.abandon(job_id, group, name)
            return pb.YieldResponse(success=True)
        pending = await self._arbiter.yield_lease(job_id, group, 0)
        return pb.YieldResponse(success=True, pending_waiters=pending, snapshot_deferred=pending == 0)

    async def ListGroups(self, request: pb.ListGroupsRequest, context: Any) -> pb.ListGroupsResponse:
        """Name the groups that the caller may see."""
        caller, groups = await self._caller("ListGroups", request, context), self._arbiter.core.state.groups
        return pb.ListGroupsResponse(group_ids=sorted(g for g in groups if self._may_see(caller, g)))

    async def GetGroupStatus(
        self, request: pb.GetGroupStatusRequest, context: Any
    ) -> pb.GetGroupStatusResponse:
        """Say how a group stands."""
        group, core = parse_group_name(request.group_id), self._arbiter.core
        caller = await self._caller("GetGroupStatus", request, context)
        if group not in core.state.groups or not self._may_see(caller, group):
            raise UnknownGroup(f"group {group} is not known")
        seen = core.standings.view(group)
        state, since = core.standings.since(group)
        status = pb.GroupStatus(
            group_id=group,
            group_state=_GROUP_STATE[state],
            state_timestamp=_timestamp(since),
            locking_job=seen.locking,
            active_job=seen.active,
            waiter_queue_depth=seen.waiting,
            loaded_job=seen.loaded,
        )
        parts = [part for key in core.state.groups[group] for part in core.state.parts[key].values()]
        return pb.GetGroupStatusResponse(group=status, agent_job_states=map(_job_state, parts))

    async def _caller(self, method: str, request: Message, context: Any) -> Caller:
        metadata = dict(context.invocation_metadata())
        try:
            return await self._gate.identify(
                metadata, Call(f"TimeSliceOrchestratorService/{method}", request)
            )
        except NotAuthenticated:
            if self._open and not any(key.startswith("interleave-") for key in metadata):
                return Caller(uid=None, operator=True)
            raise

    def _may_see(self, caller: Caller, group: str) -> bool:
        state = self._arbiter.core.state
        return caller.operator or any(state.members[k].uid == caller.uid for k in state.groups[group])


def _job_state(part: Part) -> pb.SnapshotAgentJobState:
    return pb.SnapshotAgentJobState(agent=part.node, job_state=_JOB_STATE[part.context], job_id=part.job_id)


def _timestamp(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromNanoseconds(round(seconds * 1e9))
    return stamp
