"""Servers that do not come back as they say, or never end their answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typing_extensions import override

from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.endpoint_http import EndpointFailed, call
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


async def test_an_answer_that_never_ends_has_the_limit_for_all_of_it() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not writer.is_closing():
            writer.write(b"X-More: 1\r\n")
            await asyncio.sleep(0.05)

    server = await asyncio.start_server(drip, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(EndpointFailed, match=r"no answer within 0\.2 s"):
            await asyncio.wait_for(call("GET", f"http://127.0.0.1:{port}", "/", 0.2), 30)
    finally:
        server.close()
