"""Engines of vLLM and SGLang in a job's process, as the agent moves them; here stubs of the two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import pytest_asyncio

from slurm_interleave.client import Lease
from slurm_interleave.client.core.errors import BadArgument, WrongState
from slurm_interleave.client.integrations import sglang, vllm
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.sim import SimBuffer, SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.workload import Rank, Workload
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent.channel import has_channels
from tests.node_agent.conftest import agent, folder, orchestrator, sim
from tests.node_agent.fakes import FakeOrchestrator, device_of, environment, start_job

__all__ = ["agent", "folder", "orchestrator", "sim"]


class Llm:
    """`vllm.LLM`: refuses to wait. Its bytes are on a simulated device, if it has one."""

    def __init__(self, device: SimDevice | None = None) -> None:
        self.calls: list[str] = []
        self.fails = ""
        self._device = device
        self._buffer: SimBuffer | None = None
        self._load()

    def sleep(self, level: int = 1, mode: str = "abort") -> None:
        assert mode == "abort", "the in-process engine cannot wait"
        self.calls.append(f"sleep {level}")
        if self.fails:
            raise RuntimeError(self.fails)
        if self._buffer is not None:
            self._buffer.free()

    def wake_up(self, tags: list[str] | None = None) -> bool:
        self.calls.append("wake_up")
        if self._device is not None and "sleep 1" in self.calls and not self.fails:
            self._load()
        return True

    def _load(self) -> None:
        if self._device is not None:
            self._buffer = self._device.put(np.ones(4096, np.uint8))


class AsyncLlm:
    """`AsyncLLM`: coroutines, of the loop that it was made in."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.loop = asyncio.get_running_loop()

    async def sleep(self, level: int = 1, mode: str = "abort") -> None:
        assert asyncio.get_running_loop() is self.loop
        self.calls.append(f"sleep {level} {mode}")

    async def wake_up(self, tags: list[str] | None = None) -> None:
        self.calls.append("wake_up")


class OldAsyncLlm(AsyncLlm):
    async def sleep(self, level: int = 1) -> None:  # type: ignore[override]
        self.calls.append(f"sleep {level}")


class Sglang:
    """`sglang.Engine`: what was not released may not be resumed."""

    def __init__(self, **settings: bool) -> None:
        self.server_args = SimpleNamespace(**settings)
        self.calls: list[str] = []

    def release_memory_occupation(self, tags: list[str] | None = None) -> None:
        self.calls.append("release")

    def resume_memory_occupation(self, tags: list[str] | None = None) -> None:
        assert self.calls[-1] == "release"
        self.calls.append("resume")


class Holds(Interleaver):
    """Whether it holds is said by the test."""

    def __init__(self) -> None:
        super().__init__(None)
        self.held = False

    @property
    def lease(self) -> Lease | None:
        return Lease(1, 0.0, False, 0.0) if self.held else None


def test_an_engine_sleeps_and_wakes_once_however_often_it_is_told() -> None:
    llm, holds = Llm(), Holds()
    engine = vllm.attach(llm, holds)

    for _ in range(2):
        engine.suspend((), discard=False)
    for _ in range(2):
        engine.resume(())
    engine.suspend((), discard=True)
    holds.held = True
    engine.close()

    assert llm.calls == ["sleep 1", "wake_up", "sleep 2", "wake_up"]


def test_an_engine_that_is_closed_out_of_turn_stays_off_the_devices() -> None:
    llm = Llm()
    engine = vllm.attach(llm, Holds())
    engine.suspend((), discard=False)

    engine.close()

    assert llm.calls == ["sleep 1"]


def test_an_engine_at_work_is_not_moved() -> None:
    holds, llm, saver = Holds(), Llm(), Sglang(enable_memory_saver=True)
    holds.held = True

    for engine in (vllm.attach(llm, holds), sglang.attach(saver, holds, discard=True)):
        with pytest.raises(WrongState, match="yield first"):
            engine.suspend((), discard=False)

    assert llm.calls == saver.calls == []


def test_an_engine_that_cannot_sleep_is_awake() -> None:
    llm = Llm()
    llm.fails = "no host memory"
    engine = vllm.attach(llm, Holds())

    with pytest.raises(RuntimeError, match="no host memory"):
        engine.suspend((), discard=False)
    engine.resume(())

    assert llm.calls == ["sleep 1", "wake_up"]


@pytest.mark.parametrize(("kind", "slept"), [(AsyncLlm, "sleep 1 wait"), (OldAsyncLlm, "sleep 1")])
async def test_an_asynchronous_engine_is_told_in_its_loop_and_finishes_its_requests(
    kind: type[AsyncLlm], slept: str
) -> None:
    llm = kind()
    engine = vllm.attach(llm, Holds(), loop=asyncio.get_running_loop())

    await asyncio.to_thread(engine.suspend, (), discard=False)
    await asyncio.to_thread(engine.resume, ())
    engine.close()

    assert llm.calls == [slept, "wake_up"]


async def test_what_cannot_sleep_is_refused() -> None:
    with pytest.raises(BadArgument, match="attach it with loop"):
        vllm.attach(AsyncLlm(), Holds())
    with pytest.raises(BadArgument, match="SimpleNamespace has no sleep"):
        vllm.attach(SimpleNamespace(), Holds())


def test_sglang_releases_and_resumes_in_pairs() -> None:
    saver = Sglang(enable_memory_saver=True, enable_weights_cpu_backup=True)
    engine = sglang.attach(saver, Holds())

    engine.resume(())
    for _ in range(2):
        engine.suspend((), discard=False)
    engine.resume(())
    engine.close()

    assert saver.calls == ["release", "resume"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [({}, "it would free nothing"), ({"enable_memory_saver": True}, "would lose its weights")],
)
def test_an_sglang_engine_that_would_free_nothing_or_lose_its_weights_is_refused(
    settings: dict[str, bool], text: str
) -> None:
    with pytest.raises(BadArgument, match=text):
        sglang.attach(Sglang(**settings), Holds())


@pytest_asyncio.fixture
async def llm(agent: Agent, folder: Path, sim: SimConfig) -> AsyncIterator[Llm]:
    await start_job(folder)
    llm = Llm(device_of(sim))
    workload = Workload.from_env(vllm.Engine(llm, lambda: False), Rank(), environment(folder))
    assert workload is not None
    await has_channels(agent, 1)
    yield llm
    await asyncio.to_thread(workload.close)


async def test_the_agent_has_an_engine_sleep_and_wake(
    llm: Llm, orchestrator: FakeOrchestrator, sim: SimConfig
) -> None:
    saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    taken = Arena.open(sim.directory).used_bytes(0)
    back = await orchestrator.asks("RESTORE", "17", "1-2")

    assert (saved.ok, saved.context, taken) == (True, "saved", 0)
    assert (back.ok, back.context) == (True, "resident")
    assert llm.calls == ["sleep 1", "wake_up"]
