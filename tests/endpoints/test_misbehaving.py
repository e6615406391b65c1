"""Inference servers that fail, hang, say what is not so or are gone, and what becomes of the job."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from tests.endpoints.asking import Make, agent, asked, make, tell
from tests.endpoints.servers import Engine, Sglang, Vllm
from tests.node_agent.conftest import folder, orchestrator, sim
from tests.node_agent.fakes import FakeOrchestrator, eventually

__all__ = ["agent", "folder", "make", "orchestrator", "sim"]


async def test_a_200_is_no_proof(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    honest, liar = make(Vllm, Vllm)
    await tell(folder, [honest, liar])
    liar.frees = False

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert failed.error == "job 17 said that it is suspended, but 4096 bytes are on its devices still"
    assert not honest.asleep
    assert not liar.asleep


async def test_memory_that_comes_free_late_is_waited_for(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.frees = False
    saving = asyncio.create_task(asked(orchestrator, "SNAPSHOT"))

    async def sleeps() -> bool:
        return engine.asleep

    await eventually(sleeps)
    engine.frees = True
    engine.leave()

    assert (await saving).ok


async def test_an_error_that_passes_is_tried_again(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.fails["/sleep"] = [500, 503]

    assert (await asked(orchestrator, "SNAPSHOT")).ok
    assert len(engine.calls) == 3


async def test_an_error_that_stays_leaves_the_job_running_and_wakes_the_others(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    good, bad = make(Vllm, Vllm)
    await tell(folder, [good, bad])
    bad.fails["/sleep"] = [500] * 3

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert failed.error == f"{bad.url}/sleep: status 500: it went wrong"
    assert (good.asleep, good.calls[-1]) == (False, "/wake_up")
    assert (await asked(orchestrator, "SNAPSHOT")).ok


async def test_a_server_that_lacks_the_call_says_what_to_set(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.fails["/sleep"] = [404]

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert failed.error.endswith("is VLLM_SERVER_DEV_MODE=1 set, and --enable-sleep-mode given?")


async def test_a_sleep_that_hangs_is_not_replayed_and_what_is_there_counts(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.hangs.add("/sleep")

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert "/sleep: no answer within" in failed.error
    assert engine.calls == ["/sleep?level=1&mode=wait", "/wake_up"]


async def test_a_server_that_hangs_for_good_with_all_its_bytes_there_is_running_still(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.hangs |= {"/sleep", "/wake_up"}

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert "/wake_up: no answer within" in failed.error


async def test_servers_that_left_and_do_not_come_back_fault_the_job(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    good, bad = make(Vllm, Vllm)
    await tell(folder, [good, bad])
    bad.hangs.add("/sleep")
    good.hangs.add("/wake_up")

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "faulted")
    assert "and then, undoing it" in failed.error


@pytest.mark.parametrize(("kind", "wakes"), [(Vllm, "/wake_up"), (Sglang, "/resume_memory_occupation")])
async def test_if_one_server_cannot_wake_the_others_sleep_again(
    agent: Agent,
    folder: Path,
    make: Make,
    orchestrator: FakeOrchestrator,
    sim: SimConfig,
    kind: type[Engine],
    wakes: str,
) -> None:
    good, bad = make(kind, kind)
    await tell(folder, [good, bad])
    assert (await asked(orchestrator, "SNAPSHOT")).ok
    good.queued = 2
    if isinstance(good, Vllm):
        good.brief = True
    bad.fails[wakes] = [500] * 3

    failed = await asked(orchestrator, "RESTORE")
    taken = Arena.open(sim.directory).used_bytes(0)
    again = await asked(orchestrator, "RESTORE")

    assert (failed.ok, failed.context, taken, good.crashed) == (False, "saved", 0, False)
    assert again.ok
    assert not good.asleep
    assert not bad.asleep


async def test_a_wake_up_that_hangs_before_it_began_leaves_the_job_saved(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    assert (await asked(orchestrator, "SNAPSHOT")).ok
    engine.hangs.add("/wake_up")

    failed = await asked(orchestrator, "RESTORE")

    assert (failed.ok, failed.context) == (False, "saved")


async def test_a_server_that_is_gone_is_an_error_that_leaves_the_job_as_it_is(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.close()

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert "nobody listens" in failed.error
