"""Inference servers that the agent suspends over HTTP, drained before they sleep."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.noop import NoopBackend
from tests.endpoints.asking import Make, agent, asked, busy_and_idle, make, tell
from tests.endpoints.servers import Engine, Sglang, Vllm
from tests.node_agent.conftest import folder, orchestrator, sim
from tests.node_agent.fakes import FakeOrchestrator, config, eventually, running, start_job

__all__ = ["agent", "folder", "make", "orchestrator", "sim"]


async def test_vllm_servers_sleep_and_wake_side_by_side(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, sim: SimConfig
) -> None:
    engines = make(Vllm, Vllm)
    await tell(folder, engines)
    gates = [threading.Event(), threading.Event()]
    for engine, gate in zip(engines, gates, strict=True):
        engine.slow["/sleep"] = gate

    saving = asyncio.create_task(asked(orchestrator, "SNAPSHOT"))

    async def both_sleep() -> bool:
        return all(engine.calls for engine in engines)

    await eventually(both_sleep)
    for gate in gates:
        gate.set()
    saved = await saving
    taken = Arena.open(sim.directory).used_bytes(0)
    back = await asked(orchestrator, "RESTORE")

    assert (saved.ok, saved.context, saved.bytes, taken) == (True, "saved", 8192, 0)
    assert (back.ok, back.context) == (True, "resident")
    assert [engine.calls for engine in engines] == [["/sleep?level=1&mode=wait", "/wake_up"]] * 2


async def test_weights_that_are_pushed_again_need_not_be_kept(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    engines = make(Vllm)
    await tell(folder, engines, discard=True)

    assert (await asked(orchestrator, "SNAPSHOT")).ok
    assert engines[0].calls == ["/sleep?level=2&mode=wait"]


async def test_a_server_is_drained_before_it_sleeps(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.in_flight = 2
    saving = asyncio.create_task(asked(orchestrator, "SNAPSHOT"))
    await asyncio.sleep(0.1)
    before = list(engine.calls)
    engine.in_flight = 0

    assert (await saving).ok
    assert (before, engine.crashed) == ([], False)


@pytest.mark.parametrize("status", [200, 500, 503])
async def test_a_server_that_does_not_count_its_requests_is_not_idle(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, status: int
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.in_flight = 1
    engine.fails["/metrics"] = [status] * 1000

    failed = await asked(orchestrator, "SNAPSHOT")
    engine.in_flight = 0
    engine.fails["/metrics"] = [status] * 3

    assert (failed.ok, failed.context, engine.crashed, engine.calls) == (False, "resident", False, [])
    assert f"/metrics: status {status}" in failed.error
    assert failed.error.endswith("whether requests are in flight is not known")
    assert (await asked(orchestrator, "SNAPSHOT")).ok
    assert not engine.fails["/metrics"]


@pytest.mark.parametrize("kind", [Vllm, Sglang])
async def test_a_server_that_does_not_drain_is_left_running(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, kind: type[Engine]
) -> None:
    busy, idle = await busy_and_idle(folder, make, kind)

    failed = await asked(orchestrator, "SNAPSHOT")
    busy.in_flight = 0

    assert (failed.ok, failed.context) == (False, "resident")
    assert "requests are in flight still" in failed.error
    assert not any("/sleep" in call or "/release" in call for call in busy.calls + idle.calls)
    assert not getattr(idle, "paused", False)
    assert (await asked(orchestrator, "SNAPSHOT")).ok


@pytest.mark.parametrize(("kind", "looks_at"), [(Vllm, "/metrics"), (Sglang, "/flush_cache")])
async def test_a_look_that_has_no_answer_in_time_does_not_hide_what_the_one_before_saw(
    agent: Agent,
    folder: Path,
    make: Make,
    orchestrator: FakeOrchestrator,
    kind: type[Engine],
    looks_at: str,
) -> None:
    [busy] = make(kind)
    if isinstance(busy, Sglang):
        busy.knows_pause = False
    await tell(folder, [busy])
    busy.in_flight = 3
    busy.answers[looks_at] = 1

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert "requests are in flight still" in failed.error


async def test_where_nobody_sees_the_devices_the_servers_word_counts(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, make: Make
) -> None:
    Arena.open(sim.directory, sim)
    (engine,) = make(Vllm)
    async with running(config(folder, orchestrator.address, backend="noop"), sim, NoopBackend("n1", 1)):
        await start_job(folder)
        await tell(folder, [engine])

        assert (await asked(orchestrator, "SNAPSHOT")).ok
        assert engine.asleep
        assert (await asked(orchestrator, "RESTORE")).ok
        assert not engine.asleep
