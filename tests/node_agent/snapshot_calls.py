"""Calls of the v1alpha1 agent service, on a job's socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent.fakes import device_of, environment, eventually, start_job

JOB = v1.SnapshotRequest(job_id="17")


@pytest_asyncio.fixture
async def channel(agent: Agent, folder: Path) -> AsyncIterator[grpc.aio.Channel]:
    await start_job(folder)
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> Any:
    return v1_rpc.SnapshotAgentServiceStub(channel)


@pytest.fixture
def device(channel: grpc.aio.Channel, sim: SimConfig) -> SimDevice:
    return device_of(sim)


async def finished(stub: Any, operation: str) -> v1.GetOperationResponse:
    request = v1.GetOperationRequest(operation_id=operation)

    async def is_done() -> bool:
        return bool((await stub.GetOperation(request)).status != v1.OPERATION_STATUS_PENDING)

    await eventually(is_done)
    reply: v1.GetOperationResponse = await stub.GetOperation(request)
    return reply


async def save(stub: Any, **request: Any) -> v1.GetOperationResponse:
    reply = await stub.Snapshot(v1.SnapshotRequest(job_id="17", **request))
    return await finished(stub, reply.operation_id)


async def load(stub: Any, **request: Any) -> v1.GetOperationResponse:
    reply = await stub.Restore(v1.RestoreRequest(job_id="17", **request))
    return await finished(stub, reply.operation_id)


async def state(stub: Any) -> int:
    (status,) = (await stub.Status(v1.StatusRequest())).job_statuses
    return int(status.state)


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""
