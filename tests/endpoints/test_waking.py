"""Servers that do not come back as they say, or never end their answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import override

from slurm_interleave.node_agent.agent import Agent
from tests.endpoints.asking import Make, agent, asked, make, tell
from tests.endpoints.servers import Vllm
from tests.node_agent.conftest import folder, orchestrator, sim
from tests.node_agent.fakes import FakeOrchestrator

__all__ = ["agent", "folder", "make", "orchestrator", "sim"]


class SleepsOn(Vllm):
    """Says 200, and sleeps on."""

    @override
    def come_back(self) -> tuple[int, str]:
        return 200, ""


class WakesAndHangs(Vllm):
    """Comes back, and never says so."""

    @override
    def come_back(self) -> tuple[int, str]:
        super().come_back()
        self._over.wait(30)
        return 200, ""


@pytest.mark.parametrize(
    ("kind", "context", "error"),
    [
        (SleepsOn, "saved", "it was woken and sleeps still"),
        (WakesAndHangs, "faulted", "whether it came back is not known"),
    ],
)
async def test_the_word_of_a_server_that_is_woken_is_no_proof(
    agent: Agent,
    folder: Path,
    make: Make,
    orchestrator: FakeOrchestrator,
    kind: type[Vllm],
    context: str,
    error: str,
) -> None:
    (engine,) = make(kind)
    await tell(folder, [engine])
    assert (await asked(orchestrator, "SNAPSHOT")).ok

    failed = await asked(orchestrator, "RESTORE")

    assert (failed.ok, failed.context) == (False, context)
    assert error in failed.error
