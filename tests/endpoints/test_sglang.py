"""SGLang's servers, which stop generating before they release and go on after they resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.node_agent.agent import Agent
from tests.endpoints.asking import Make, agent, asked, make, tell
from tests.endpoints.servers import Sglang
from tests.node_agent.conftest import folder, orchestrator, sim
from tests.node_agent.fakes import FakeOrchestrator

__all__ = ["agent", "folder", "make", "orchestrator", "sim"]


@pytest.mark.parametrize("pauses", [True, False])
async def test_sglang_pauses_releases_resumes_and_goes_on(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, pauses: bool
) -> None:
    (engine,) = make(Sglang)
    assert isinstance(engine, Sglang)
    engine.knows_pause = pauses
    engine.in_flight = 2 if pauses else 0
    await tell(folder, [engine])

    saved = await asked(orchestrator, "SNAPSHOT")
    back = await asked(orchestrator, "RESTORE")

    assert (saved.ok, back.ok, engine.crashed, engine.asleep) == (True, True, False, False)
    done = [call.partition(" ")[0] for call in engine.calls]
    first = ["/pause_generation"] if pauses else ["/pause_generation", "/flush_cache"]
    assert done == [
        *first,
        "/release_memory_occupation",
        "/resume_memory_occupation",
        "/continue_generation",
    ]


async def test_an_sglang_server_that_refuses_to_release_goes_on(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    good, bad = make(Sglang, Sglang)
    await tell(folder, [good, bad])
    bad.fails["/release_memory_occupation"] = [500] * 3

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert (good.asleep, bad.calls[-1]) == (False, "/continue_generation")
    assert not any("resume" in call for call in bad.calls)


async def test_a_server_that_is_back_and_cannot_go_on_leaves_again_and_is_tried_once_more(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, sim: SimConfig
) -> None:
    good, bad = make(Sglang, Sglang)
    await tell(folder, [good, bad])
    assert (await asked(orchestrator, "SNAPSHOT")).ok
    bad.fails["/continue_generation"] = [500] * 3

    failed = await asked(orchestrator, "RESTORE")
    taken = Arena.open(sim.directory).used_bytes(0)
    again = await asked(orchestrator, "RESTORE")

    assert (failed.ok, failed.context, taken) == (False, "saved", 0)
    assert (again.ok, good.asleep, bad.asleep) == (True, False, False)


async def test_a_server_that_is_back_and_can_neither_go_on_nor_leave_is_not_taken_for_saved(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (bad,) = make(Sglang)
    await tell(folder, [bad])
    assert (await asked(orchestrator, "SNAPSHOT")).ok
    bad.fails.update({"/continue_generation": [500] * 3, "/release_memory_occupation": [500] * 3})

    failed = await asked(orchestrator, "RESTORE")

    assert (failed.ok, failed.context) == (False, "faulted")
