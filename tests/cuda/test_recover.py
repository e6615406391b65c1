"""What the next agent makes of what the last one left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.contexts import Seen
from tests.cuda.conftest import Node
from tests.stub_driver.stub import CHECKPOINTED, LOCKED, MIB, RUNNING, Process, Stub

AGENT = """
import asyncio, sys
from pathlib import Path
from tests.cuda.conftest import Node
async def run():
    node = Node(Path(sys.argv[1]))
    await node.backend.recover([])
    await node.save()
asyncio.run(run())
"""


async def next_agent(node: Node) -> Node:
    """Start another agent on the same node."""
    await node.backend.close()
    other = await asyncio.to_thread(Node, node.folder)
    await other.backend.recover(["17"])
    return other


async def test_a_saved_job_is_known_to_the_next_agent_and_comes_back(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2", "1:3")
    before = rank.ask("hash")
    await node.saved()

    other = await next_agent(node)
    try:
        assert other.backend.look("17") == Seen(Context.SAVED, 5 * MIB)
        assert (await other.bring()).moved == 5 * MIB
        assert rank.ask("hash") == before
    finally:
        await other.backend.close()


async def test_a_saved_job_is_known_from_the_driver_alone(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    await node.saved()
    (node.folder / "cuda.json").write_text("{ half a file")

    other = await next_agent(node)
    try:
        assert other.backend.look("17") == Seen(Context.SAVED, 0)
        assert (await other.bring()).ok
        assert rank.ask("hash") == before
    finally:
        await other.backend.close()


async def test_a_job_whose_processes_are_gone_has_no_context(node: Node, stub: Stub) -> None:
    rank = stub.start("17", "0:2")
    await node.saved()
    rank.kill()

    other = await next_agent(node)
    try:
        assert other.backend.look("17") is None
        assert (await other.bring()).context is Context.NONE
    finally:
        await other.backend.close()


@pytest.mark.parametrize(
    "states",
    [
        (LOCKED, LOCKED, RUNNING),
        (CHECKPOINTED, LOCKED, LOCKED),
        (CHECKPOINTED, CHECKPOINTED, LOCKED),
        (RUNNING, LOCKED, LOCKED),
    ],
)
async def test_a_move_that_was_cut_off_is_undone(node: Node, stub: Stub, states: tuple[int, ...]) -> None:
    ranks = [stub.start("17", f"{device}:2") for device in range(3)]
    before = [rank.ask("hash") for rank in ranks]
    await _leave(node, ranks, states)

    other = await next_agent(node)
    try:
        assert [stub.state(rank.pid) for rank in ranks] == [RUNNING] * 3
        assert [rank.ask("hash") for rank in ranks] == before
        assert other.backend.look("17") == Seen(Context.RESIDENT, 0)
    finally:
        await other.backend.close()


async def test_a_restore_that_was_cut_off_is_undone_where_there_is_no_room(node: Node, stub: Stub) -> None:
    ranks = [stub.start("17", f"{device}:2") for device in range(3)]
    before = [rank.ask("hash") for rank in ranks]
    await node.saved()
    await node.backend._helpers.ask("restore", 5, pid=ranks[0].pid)
    stub.start("18", "1:62")

    other = await next_agent(node)
    try:
        assert [stub.state(rank.pid) for rank in ranks] == [CHECKPOINTED] * 3
        assert other.backend.look("17") == Seen(Context.SAVED, 6 * MIB)
        stub.close()
    finally:
        await other.backend.close()
    assert len(before) == 3


async def test_an_agent_that_is_stopped_while_it_saves_lets_the_call_of_the_driver_end(
    node: Node, stub: Stub
) -> None:
    rank = stub.start("17", "0:2")
    before = rank.ask("hash")
    stub.fault("checkpoint", 0, delay_ms=1500)

    saving = asyncio.create_task(node.save())
    await asyncio.to_thread(stub.wait_until_asked, "checkpoint", rank.pid)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    other = await next_agent(node)
    try:
        assert [call.code for call in stub.asked("checkpoint")] == [0]
        assert other.backend.look("17") == Seen(Context.SAVED, 2 * MIB)
        stranger = await asyncio.to_thread(stub.start, "18", "0:62")
        assert (await other.bring()).error.startswith("no_room: device 0 has ")
        stranger.kill()
        assert (await other.bring()).ok
        assert rank.ask("hash") == before
    finally:
        await other.backend.close()


async def test_an_agent_that_is_killed_while_it_saves_leaves_a_job_that_lives(node: Node, stub: Stub) -> None:
    ranks = [stub.start("17", f"{device}:2") for device in range(3)]
    before = [rank.ask("hash") for rank in ranks]
    stub.fault("checkpoint", 0, pid=ranks[1].pid, delay_ms=4000)
    root = Path(__file__).parents[2]
    argv = [sys.executable, "-c", AGENT, str(node.folder)]
    agent = await asyncio.to_thread(subprocess.Popen, argv, cwd=root)
    for rank in ranks:
        await asyncio.to_thread(stub.wait_until_asked, "checkpoint", rank.pid)

    os.kill(agent.pid, signal.SIGKILL)
    agent.wait()
    other = await next_agent(node)
    try:
        # Its helper was not killed with it: nothing is done before the call that it is in has ended.
        (checkpoint,) = stub.asked("checkpoint", ranks[1].pid)
        assert checkpoint.code == 0
        assert [call.op for call in stub.asked() if call.begun_ms < checkpoint.ended_ms] == ["lock"] * 3 + [
            "checkpoint"
        ] * 3
        assert other.backend.look("17") == Seen(Context.SAVED, 6 * MIB)
        assert (await other.bring()).ok
        assert [rank.ask("hash") for rank in ranks] == before
    finally:
        await other.backend.close()


async def _leave(node: Node, ranks: list[Process], states: tuple[int, ...]) -> None:
    for rank, state in zip(ranks, states, strict=True):
        for call in ("lock", "checkpoint")[:state]:
            arguments = {"timeout_ms": 1000} if call == "lock" else {}
            assert await node.backend._helpers.ask(call, 5, pid=rank.pid, **arguments) == (0, 0)
