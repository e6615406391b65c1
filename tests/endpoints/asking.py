"""An agent of a job with inference servers, and who asks it to suspend them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from slurm_interleave.client.endpoints import register_endpoints
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.endpoints.servers import Engine, Sglang
from tests.node_agent.conftest import folder, orchestrator, sim
from tests.node_agent.fakes import FakeOrchestrator, config, device_of, environment, running, start_job

__all__ = ["folder", "orchestrator", "sim"]
Make = Callable[..., list[Engine]]


@pytest.fixture
def make(sim: SimConfig) -> Iterator[Make]:
    engines: list[Engine] = []

    def made(*kinds: type[Engine]) -> list[Engine]:
        device = device_of(sim)
        engines.extend(kind(device) for kind in kinds)
        return engines[-len(kinds) :]

    yield made
    for engine in engines:
        engine.close()


@pytest_asyncio.fixture
async def agent(folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator) -> AsyncIterator[Agent]:
    """With a limit of 2 s: a server has 0.8 s to drain and 1.4 s to have left."""
    where = config(folder, orchestrator.address, operation_timeout_s=2.0)
    async with running(where, sim, SimBackend("n1", sim)) as agent:
        await start_job(folder)
        yield agent


async def tell(folder: Path, engines: list[Engine], **more: Any) -> None:
    urls = [engine.url for engine in engines]
    environ = environment(folder)
    done = await asyncio.to_thread(register_endpoints, engines[0].app, urls, environ=environ, **more)
    assert done


async def busy_and_idle(folder: Path, make: Make, kind: type[Engine]) -> list[Engine]:
    """Tell of two servers; requests of the first are in flight, and it cannot pause them."""
    busy, idle = make(kind, kind)
    if isinstance(busy, Sglang):
        busy.knows_pause = False
    await tell(folder, [busy, idle])
    busy.in_flight = 3
    return [busy, idle]


_numbers = itertools.count(1)


async def asked(orchestrator: FakeOrchestrator, verb: str) -> pb.OperationDone:
    return await orchestrator.asks(verb, "17", f"1-{next(_numbers)}")
