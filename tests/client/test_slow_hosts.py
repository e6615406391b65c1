"""An orchestrator whose host is far away, or has a lot to do, is reached all the same."""

from __future__ import annotations

import asyncio

from slurm_interleave.client.cli.link import orchestrator as at_orchestrator
from slurm_interleave.client.interleaver import Interleaver
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.cli.server import GivenOrchestrator, served
from tests.client.fakes import FakeOrchestrator
from tests.proxy import proxy

LATE_S = 1.5


async def test_a_lease_is_had_though_the_hosts_first_word_comes_late(
    orchestrator: FakeOrchestrator, environ: dict[str, str]
) -> None:
    async with proxy(int(orchestrator.address.rpartition(":")[2]), LATE_S) as link:
        mine = Interleaver.from_env({**environ, "INTERLEAVE_ORCHESTRATOR": link.address})

        lease = await asyncio.to_thread(mine.acquire, timeout=30)

        assert lease.epoch == 1
        await asyncio.to_thread(mine.close)


async def test_a_question_is_answered_at_its_first_try_though_the_hosts_first_word_comes_late() -> None:
    def ask(address: str) -> pb.StatusReply:
        with at_orchestrator(None, address, {"INTERLEAVE_TOKEN": "x"}) as link:
            return link.status("")

    given = GivenOrchestrator(reply=pb.StatusReply(version="7"))
    with served(given) as address:
        async with proxy(int(address.rpartition(":")[2]), LATE_S) as link:
            assert (await asyncio.to_thread(ask, link.address)).version == "7"
