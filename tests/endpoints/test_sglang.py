"""SGLang's servers, which stop generating before they release and go on after they resume."""

from __future__ import annotations

from pathlib import Path

import pytest

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
