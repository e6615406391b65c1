"""Moves that are cancelled: the driver's calls are waited for, and undone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.backends.protocol import Target
from slurm_interleave.node_agent.contexts import Outcome
from tests.cuda.conftest import Node, four_ranks, runs_on
from tests.stub_driver.stub import CHECKPOINTED, MIB, Stub


async def cancelled(node: Node, stub: Stub, verb: str, at: str, pid: int, *, ended: bool = False) -> Outcome:
    """Begin *verb* of job 17, and cancel it while the driver is at work on the call *at* of *pid*."""
    target = Target("17", (0, 1, 2, 3), node.deadline_s)
    stub.fault(at, 0, pid=pid, delay_ms=500)
    moving = asyncio.create_task(getattr(node.backend, verb)(target))
    await asyncio.to_thread(stub.wait_until_asked, at, pid)
    if ended:
        del node.owners["17"]
    target.stop.set()
    outcome: Outcome = await moving
    return outcome


@pytest.mark.parametrize("at", ["lock", "checkpoint"])
async def test_a_snapshot_that_is_cancelled_leaves_all_ranks_running(node: Node, stub: Stub, at: str) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]

    outcome = await cancelled(node, stub, "snapshot", at, ranks[2].pid)

    assert (outcome.context, outcome.error) == (Context.RESIDENT, "cancelled")
    assert await runs_on(stub, ranks, before)
    assert bool(stub.asked("checkpoint")) == (at == "checkpoint")
    assert (await node.save()).context is Context.SAVED


async def test_a_restore_that_is_cancelled_leaves_all_ranks_saved(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    await node.saved()

    outcome = await cancelled(node, stub, "restore", "restore", ranks[1].pid)

    assert (outcome.context, outcome.error) == (Context.SAVED, "cancelled")
    assert {stub.state(rank.pid) for rank in ranks} == {CHECKPOINTED}
    assert (await node.bring()).context is Context.RESIDENT
    assert await runs_on(stub, ranks, before)


@pytest.mark.parametrize("verb", ["snapshot", "restore"])
async def test_of_processes_that_are_moved_in_turn_those_to_come_are_left_alone(
    node: Node, stub: Stub, verb: str
) -> None:
    ranks = [stub.start("17", f"{device}:2", CUDA_CHECKPOINT_JOB_FILE="/x") for device in range(4)]
    before = [rank.ask("hash") for rank in ranks]
    if verb == "restore":
        await node.saved()
    call = {"snapshot": "checkpoint", "restore": "restore"}[verb]
    first = min(rank.pid for rank in ranks)

    outcome = await cancelled(node, stub, verb, call, first)

    assert "cancelled" in outcome.error
    assert outcome.context is {"snapshot": Context.RESIDENT, "restore": Context.SAVED}[verb]
    others = [asked for asked in stub.asked(call) if asked.pid != first]
    assert others == []
    if verb == "restore":
        await node.bring()
    assert await runs_on(stub, ranks, before)


async def test_a_job_that_has_ended_is_not_brought_back_to_be_killed_there(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)

    outcome = await cancelled(node, stub, "snapshot", "checkpoint", ranks[0].pid, ended=True)

    assert outcome.context is Context.SAVED
    assert not stub.asked("restore")


async def test_a_snapshot_that_cannot_be_undone_for_want_of_room_is_left_saved(
    node: Node, stub: Stub
) -> None:
    ranks = four_ranks(stub)
    node.backend._moves._config = replace(node.config, release_timeout_s=0.3)
    stub.fault("checkpoint", 0, pid=ranks[0].pid, delay_ms=2000)
    target = Target("17", (0, 1, 2, 3), node.deadline_s)
    moving = asyncio.create_task(node.backend.snapshot(target))
    await asyncio.to_thread(stub.wait_until_asked, "checkpoint", ranks[0].pid)
    stranger = await asyncio.to_thread(stub.start, "18", "1:62")
    await asyncio.to_thread(stranger.ask, "hash")

    target.stop.set()
    outcome = await moving

    assert (outcome.context, outcome.moved) == (Context.SAVED, 8 * MIB)
    assert {stub.state(rank.pid) for rank in ranks} == {CHECKPOINTED}
