"""Servers whose move is cancelled: what they have begun they end, and then they undo it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.endpoints.asking import Make, asked, busy_and_idle, make, tell
from tests.endpoints.servers import Engine, Sglang, Vllm
from tests.node_agent.conftest import folder, orchestrator, sim
from tests.node_agent.fakes import FakeOrchestrator, config, eventually, running, start_job

__all__ = ["folder", "make", "orchestrator", "sim"]
CALLS = {
    "SNAPSHOT": {Vllm: "/sleep", Sglang: "/release_memory_occupation"},
    "RESTORE": {Vllm: "/wake_up", Sglang: "/resume_memory_occupation"},
}
LONG_S = 60.0  # nothing ends by its limit before it is cancelled
kinds = pytest.mark.parametrize("kind", [Vllm, Sglang])


@pytest_asyncio.fixture
async def agent(folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator) -> AsyncIterator[Agent]:
    where = config(folder, orchestrator.address, operation_timeout_s=LONG_S)
    async with running(where, sim, SimBackend("n1", sim)) as agent:
        await start_job(folder)
        yield agent


async def cancel(orchestrator: FakeOrchestrator, moving: asyncio.Task[pb.OperationDone]) -> None:
    orchestrator.orders(cancel=pb.Cancel(job_id="17"))
    await asyncio.sleep(0.2)  # it has come by then
    assert not moving.done()


@kinds
async def test_servers_that_are_being_drained_serve_on_at_once(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, kind: type[Engine]
) -> None:
    busy, idle = await busy_and_idle(folder, make, kind)
    told = busy.asked
    moving = asyncio.create_task(asked(orchestrator, "SNAPSHOT"))

    async def is_drained() -> bool:
        return busy.asked > told

    await eventually(is_drained)
    orchestrator.orders(cancel=pb.Cancel(job_id="17"))
    done = await moving
    busy.in_flight = 0

    assert (done.ok, done.context) == (False, "resident")
    assert "cancelled" in done.error
    assert not any(CALLS["SNAPSHOT"][kind] in call for call in busy.calls + idle.calls)
    assert not getattr(idle, "paused", False)
    assert (await asked(orchestrator, "SNAPSHOT")).ok


@kinds
@pytest.mark.parametrize(("verb", "stays"), [("SNAPSHOT", "resident"), ("RESTORE", "saved")])
async def test_a_call_that_a_server_has_begun_is_awaited_and_then_undone(
    agent: Agent,
    folder: Path,
    make: Make,
    orchestrator: FakeOrchestrator,
    sim: SimConfig,
    kind: type[Engine],
    verb: str,
    stays: str,
) -> None:
    slow, quick = make(kind, kind)
    await tell(folder, [slow, quick])
    if verb == "RESTORE":
        assert (await asked(orchestrator, "SNAPSHOT")).ok
    gate = slow.slow[CALLS[verb][kind]] = threading.Event()
    before = len(slow.calls)
    moving = asyncio.create_task(asked(orchestrator, verb))

    async def begun() -> bool:
        return any(CALLS[verb][kind] in call for call in slow.calls[before:])

    await eventually(begun)
    await cancel(orchestrator, moving)
    gate.set()
    done = await moving

    assert (done.ok, done.context, done.error) == (False, stays, "cancelled")
    assert (Arena.open(sim.directory).used_bytes(0) > 0) == (verb == "SNAPSHOT")
    assert (await asked(orchestrator, verb)).ok
