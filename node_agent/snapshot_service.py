"""The v1alpha1 agent service, as existing clients know it: for one job on its socket, for all on TCP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from slurm_interleave.client.core.errors import BadArgument, NotRegistered, UnknownOperation
from slurm_interleave.client.core.names import excerpt
from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.node_agent.backends.channel import Channel, Channels, Speaker
from slurm_interleave.node_agent.contexts import Verb
from slurm_interleave.node_agent.movers import Movers
from slurm_interleave.node_agent.operations import ALREADY_RUNNING, Operations
from slurm_interleave.node_agent.results import Result
from slurm_interleave.node_agent.state import Job, State

_STATES = {
    Context.NONE: v1.JOB_STATE_IDLE,
    Context.RESIDENT: v1.JOB_STATE_RUNNING,
    Context.SAVING: v1.JOB_STATE_TRANSITIONING,
    Context.RESTORING: v1.JOB_STATE_TRANSITIONING,
    Context.SAVED: v1.JOB_STATE_SAVED,
    Context.FAULTED: v1.JOB_STATE_FAULTED,
    Context.UNKNOWN: v1.JOB_STATE_UNSPECIFIED,
}
_REGISTER_MAX = 64 << 10


class SnapshotService(v1_rpc.SnapshotAgentServiceServicer):
    """Snapshot, Restore, GetOperation, Status and WorkloadChannel."""

    def __init__(
        self,
        state: State,
        operations: Operations,
        channels: Channels,
        movers: Movers,
        moved: Callable[[Job], None],
        only: str = "",
    ) -> None:
        """*only* names the one job that may be named; *moved* is told when an operation here has ended."""
        self._state = state
        self._operations = operations
        self._channels = channels
        self._movers = movers
        self._moved = moved
        self._only = only

    async def Snapshot(self, request: v1.SnapshotRequest, _context: Any) -> v1.SnapshotResponse:
        """Begin to save a job's context."""
        return v1.SnapshotResponse(operation_id=self._begin(request, Verb.SNAPSHOT))

    async def Restore(self, request: v1.RestoreRequest, _context: Any) -> v1.RestoreResponse:
        """Begin to bring a job's context back."""
        return v1.RestoreResponse(operation_id=self._begin(request, Verb.RESTORE))

    async def GetOperation(self, request: v1.GetOperationRequest, _context: Any) -> v1.GetOperationResponse:
        """Say how an operation stands."""
        if request.operation_id == ALREADY_RUNNING:
            return v1.GetOperationResponse(status=v1.OPERATION_STATUS_COMPLETE)
        results = self._operations.results
        task = results.get(request.operation_id, self._only)
        if task is None:
            raise UnknownOperation(f"no operation {excerpt(request.operation_id)} on this node")
        if not task.done():
            elapsed_ms = round(results.seconds(request.operation_id) * 1000)
            return v1.GetOperationResponse(status=v1.OPERATION_STATUS_PENDING, elapsed_ms=elapsed_ms)
        return _operation(task.result())

    async def Status(self, _request: v1.StatusRequest, _context: Any) -> v1.StatusResponse:
        """Say where the jobs' contexts are and what is used of the devices."""
        jobs = [job for job in self._state.jobs.values() if self._only in ("", job.job_id) and not job.ended]
        return v1.StatusResponse(
            job_statuses=[
                v1.JobStatus(job_id=job.job_id, state=_STATES[self._operations.as_called(job).state])
                for job in jobs
            ],
            accelerator_statuses=[
                v1.AcceleratorStatus(
                    id=device.uuid,
                    memory_used_bytes=device.used_bytes,
                    memory_total_bytes=device.memory_bytes,
                )
                for device in self._operations.backend.devices()
            ],
        )

    async def WorkloadChannel(
        self, request_iterator: AsyncIterator[v1.WorkloadMessage], context: Any
    ) -> AsyncIterator[v1.AgentCommand]:
        """Serve the channel of an application that moves its own state."""
        messages = aiter(request_iterator)
        register = await self._registration(messages)
        speaker = Speaker.parse(dict(context.invocation_metadata() or ()))
        channel = Channel(register.capabilities, speaker)
        self._channels.open(register.job_id, channel)
        reader = asyncio.create_task(_read(messages, channel))
        try:
            async for command in _until(channel.commands(), reader):
                yield command
            await reader
        finally:
            reader.cancel()
            self._channels.close(register.job_id, channel)

    async def _registration(self, messages: AsyncIterator[v1.WorkloadMessage]) -> v1.RegisterWorkload:
        first = await anext(messages, v1.WorkloadMessage())
        if not first.register.job_id:
            raise BadArgument("the first message of a workload channel must be `register` with a job_id")
        if (size := first.register.ByteSize()) > _REGISTER_MAX:
            raise BadArgument(f"`register` has {size} bytes; at most {_REGISTER_MAX} are kept for a channel")
        self._find(first.register.job_id)
        return first.register

    def _begin(self, request: v1.SnapshotRequest | v1.RestoreRequest, verb: Verb) -> str:
        job = self._find(request.job_id)
        operation = self._operations.call(job, verb, self._movers.asked(job, _config(request)))
        task = self._operations.results.get(operation)
        if task is not None:
            task.add_done_callback(lambda _: self._moved(job))
        return operation

    def _find(self, job_id: str) -> Job:
        job = self._state.jobs.get(job_id)
        if job is None or job.ended or self._only not in ("", job_id):
            raise NotRegistered(f"job {excerpt(job_id)} is not registered on this node")
        return job


def _config(request: v1.SnapshotRequest | v1.RestoreRequest) -> v1.BackendConfig:
    """Return what is to move the state; older clients name it by number alone. Raises `BadArgument`."""
    named = request.backend
    if request.backend_config.WhichOneof("backend") or named == v1.BACKEND_UNSPECIFIED:
        return request.backend_config
    if named != v1.BACKEND_CUDA:
        raise BadArgument(f"backend = {named} is not known; known is {v1.BACKEND_CUDA} (BACKEND_CUDA)")
    return v1.BackendConfig(cuda=v1.CudaBackendConfig())


def _operation(result: Result) -> v1.GetOperationResponse:
    outcome = result.outcome
    reply = v1.GetOperationResponse(elapsed_ms=round(result.seconds * 1000))
    if outcome.ok:
        reply.status = v1.OPERATION_STATUS_COMPLETE
        reply.storage_bytes = result.bytes
        reply.snapshot_device_bytes = outcome.moved
    else:
        reply.status = v1.OPERATION_STATUS_FAILED
        reply.error = outcome.error
    return reply


async def _read(messages: AsyncIterator[v1.WorkloadMessage], channel: Channel) -> None:
    async for message in messages:
        if message.HasField("register"):
            raise BadArgument("this workload channel is registered already; open another stream")
        channel.answered(message.result)


async def _until(
    commands: AsyncIterator[v1.AgentCommand], end: asyncio.Task[None]
) -> AsyncIterator[v1.AgentCommand]:
    """Yield *commands* until *end* is done."""
    while not end.done():
        command = asyncio.ensure_future(anext(commands))
        try:
            await asyncio.wait({command, end}, return_when=asyncio.FIRST_COMPLETED)
            if command.done():
                yield command.result()
        finally:
            command.cancel()
