"""Applications that move their own state, and their end of the workload channel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio

from slurm_interleave.client.sim import SimBuffer, SimDevice
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent import snapshot_calls
from tests.node_agent.fakes import device_of, environment, eventually, start_job

OFFLOAD, DISCARD = v1.SUSPEND_MODE_OFFLOAD, v1.SUSPEND_MODE_DISCARD


class App:
    """An application with a workload channel."""

    def __init__(self, stub: Any) -> None:
        self.stream = stub.WorkloadChannel()

    async def register(self, job: str = "17", **capabilities: Any) -> None:
        known = v1.WorkloadCapabilities(**capabilities)
        register = v1.RegisterWorkload(job_id=job, capabilities=known)
        await self.stream.write(v1.WorkloadMessage(register=register))

    async def hears(self) -> v1.AgentCommand:
        command: v1.AgentCommand = await asyncio.wait_for(self.stream.read(), 30)
        return command

    async def answers(self, command: v1.AgentCommand, error: str = "") -> None:
        result = v1.CommandResult(command_id=command.command_id, ok=not error, error=error)
        await self.stream.write(v1.WorkloadMessage(result=result))


@pytest_asyncio.fixture
async def stub(agent: Agent, folder: Path) -> AsyncIterator[Any]:
    await start_job(folder)
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as channel:
        yield v1_rpc.SnapshotAgentServiceStub(channel)


@pytest_asyncio.fixture
async def app(stub: Any, agent: Agent) -> App:
    app = App(stub)
    await app.register(supported_modes=[OFFLOAD], tags=["weights"])
    await has_channel(agent)
    return app


async def has_channel(agent: Agent, other_than: object = None) -> object:
    async def is_there() -> bool:
        return agent._channels.of("17") not in ([], other_than)

    await eventually(is_there)
    return agent._channels.of("17")


async def finished(stub: Any, operation: Any) -> v1.GetOperationResponse:
    return await snapshot_calls.finished(stub, operation.operation_id)


@pytest.fixture
def device(stub: Any, sim: SimConfig) -> SimDevice:
    return device_of(sim)


class HostCopy:
    """The state of one rank: one buffer on the device, or its bytes in host memory."""

    tags = ("weights",)
    can_discard = False

    def __init__(self, device: SimDevice, value: int) -> None:
        self._device = device
        self._saved: np.ndarray | None = None
        self.buffer: SimBuffer | None = device.put(np.full(4096, value, np.uint8))
        self.arena_bytes = 0
        self.cannot_suspend = self.cannot_resume = ""
        self.suspended = threading.Event()

    def suspend(self, tags: Sequence[str], *, discard: bool) -> None:
        assert (list(tags), discard) == ([], False)
        if self.cannot_suspend:
            raise RuntimeError(self.cannot_suspend)
        if self.buffer is not None:
            self._saved, self.arena_bytes = self.buffer.get(), self.buffer.nbytes
            self.buffer.free()
            self.buffer = None
        self.suspended.set()

    def resume(self, tags: Sequence[str]) -> None:
        assert list(tags) == []
        if self.cannot_resume:
            raise RuntimeError(self.cannot_resume)
        if self._saved is not None:
            self.buffer, self._saved = self._device.put(self._saved), None


async def has_channels(agent: Agent, count: int) -> None:
    async def are_there() -> bool:
        return len(agent._channels.of("17")) == count

    await eventually(are_there)
