"""Over the wire: what an agent sees of trespassers, who is shown it, and the order to kill."""

from __future__ import annotations

from slurm_interleave.client.connect import TOKEN_KEY
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client, eventually

WORKS = pb.Use(device=0, pid=7, job_id="a", working=True)
STRANGER = pb.Use(device=1, pid=8, working=True)


async def shown(client: Client, token: str = "") -> tuple[list[tuple[str, int]], int]:
    metadata = ((TOKEN_KEY, token),) if token else None
    [node] = (await client.status(metadata=metadata)).nodes
    return [(one.job_id, one.pid) for one in node.trespasses], node.trespass_count


async def test_trespassers_are_shown_to_operators_and_their_own_users(client: Client, n1: FakeAgent) -> None:
    mine = await n1.start("a")
    others = await n1.start("x", uid=1001)

    await n1.sees(WORKS, STRANGER)
    await n1.sees(WORKS, STRANGER)

    async def seen() -> bool:
        return await shown(client) == ([("a", 7), ("", 8)], 2)

    await eventually(seen)
    assert await shown(client, mine) == ([("a", 7)], 0)
    assert await shown(client, others) == ([], 0)


async def test_the_order_to_kill_goes_to_the_agent_that_wants_it(client: Client, n1: FakeAgent) -> None:
    await n1.close()
    n1.trespass = "kill"
    await n1.connect()

    await n1.sees(WORKS, STRANGER)
    await n1.sees(WORKS, STRANGER)

    assert await n1.next_stop() == pb.Stop(job_id="a", attempt="1", pid=7)
    assert n1.stops.empty()
