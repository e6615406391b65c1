"""Each way in which the driver fails, and what becomes of the job."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest

from slurm_interleave.client.core.states import Context
from tests.cuda.conftest import CONFIG, Node, four_ranks, runs_on
from tests.stub_driver.stub import CHECKPOINTED, FAILED, LOCKED, MIB, RUNNING, Stub


async def test_work_that_does_not_end_leaves_the_job_running(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    node.backend._moves._config = type(CONFIG)(lock_timeout_s=0.5, headroom_mib=1)
    stub.fault("lock", 600, pid=ranks[2].pid, delay_ms=-1)

    saved = await node.save()

    assert saved.context is Context.RESIDENT
    assert f"lock of process {ranks[2].pid}: its work on the devices did not end in time" in saved.error
    assert await runs_on(stub, ranks, before)
    assert not stub.asked("checkpoint")
    assert (await node.save()).context is Context.SAVED  # it was not tried for ever


async def test_a_lock_that_hangs_is_given_up_and_the_job_runs_on(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    node.backend._moves._config = type(CONFIG)(lock_timeout_s=0.5, headroom_mib=1)
    node.deadline_s = 3
    stub.fault("lock", 0, pid=ranks[0].pid, delay_ms=60_000)

    saved = await node.save()

    assert saved.context is Context.RESIDENT, saved
    assert "no answer within" in saved.error
    assert await runs_on(stub, ranks, before)
    assert len(stub.asked("lock", ranks[0].pid)) == 1


async def test_peers_that_give_no_answer_while_one_is_locked_are_asked_after_it(
    node: Node, stub: Stub
) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    stub.set(peers=1)
    node.backend._moves._config = type(CONFIG)(lock_timeout_s=0.5, headroom_mib=1)
    stub.fault("lock", 0, pid=ranks[0].pid, delay_ms=60_000)

    saved = await node.save()

    assert saved.context is Context.RESIDENT, saved
    assert await runs_on(stub, ranks, before)


async def test_a_checkpoint_that_fails_on_rank_3_leaves_the_job_running(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    stub.fault("checkpoint", 401, pid=ranks[3].pid, delay_ms=300)

    saved = await node.save()

    assert saved.context is Context.RESIDENT
    assert f"checkpoint of process {ranks[3].pid}: not possible in this state (error 401)" in saved.error
    assert await runs_on(stub, ranks, before)
    assert len(stub.asked("checkpoint", ranks[3].pid)) == 1
    assert (await node.save()).context is Context.SAVED


async def test_what_the_driver_cannot_save_is_not_tried_again(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    stub.fault("checkpoint", 801, pid=ranks[1].pid)

    first, second = await node.save(), await node.save()

    assert "managed (UVM) memory" in first.error
    assert first.error in f"{second.error}; "
    assert second.context is Context.RESIDENT
    assert await runs_on(stub, ranks, before)
    await node.backend.discard(node.target("17"))
    assert (await node.save()).context is Context.SAVED  # the id came again: another job


async def test_a_process_that_the_driver_has_lost_is_faulted_and_the_others_run_on(
    node: Node, stub: Stub
) -> None:
    ranks = four_ranks(stub)
    stub.fault("checkpoint", 2, pid=ranks[0].pid, state=FAILED)

    saved = await node.save()

    assert saved.context is Context.FAULTED
    assert "out of memory" in saved.error
    assert f"process {ranks[0].pid}: it cannot be brought to RUNNING: its state is 3" in saved.error
    assert {stub.state(rank.pid) for rank in ranks[1:]} == {RUNNING}


async def test_a_checkpoint_that_hangs_is_given_up_and_the_job_runs_on(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    node.deadline_s = 3
    stub.fault("checkpoint", 0, pid=ranks[0].pid, delay_ms=60_000)

    saved = await node.save()

    assert saved.context is Context.RESIDENT, saved
    assert await runs_on(stub, ranks, before)
    assert len(stub.asked("checkpoint", ranks[0].pid)) == 1


async def test_a_call_that_was_carried_out_though_its_helper_died_counts(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    node.deadline_s = 3
    stub.fault("checkpoint", 0, pid=ranks[0].pid, delay_ms=60_000, after=True)

    saved = await node.save()
    back = await node.bring()

    assert (saved.context, saved.moved, saved.error) == (Context.SAVED, 8 * MIB, "")
    assert back.ok
    assert await runs_on(stub, ranks, before)
    assert all(len(stub.asked(op, ranks[0].pid)) == 1 for op in ("lock", "checkpoint", "restore", "unlock"))


async def test_a_helper_that_is_killed_in_the_middle_of_a_call_is_replaced(
    node: Node, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    stub.fault("checkpoint", 0, pid=ranks[0].pid, delay_ms=60_000)
    ask, fresh = node.backend._helpers.ask, []

    async def watched(call: str, limit_s: float, **arguments: Any) -> tuple[int, Any]:
        if call == "state":
            fresh.append((arguments["pid"], arguments["fresh"]))
        return await ask(call, limit_s, **arguments)

    monkeypatch.setattr(node.backend._helpers, "ask", watched)

    saving = asyncio.create_task(node.save())
    await asyncio.to_thread(stub.wait_until_asked, "checkpoint", ranks[0].pid)
    (checkpoint,) = stub.asked("checkpoint", ranks[0].pid)
    os.kill(checkpoint.caller, signal.SIGKILL)
    saved = await saving

    assert saved.context is Context.RESIDENT
    assert fresh == [(ranks[0].pid, True)]
    assert await runs_on(stub, ranks, before)
    assert (await node.save()).context is Context.SAVED


async def test_a_driver_that_does_not_even_say_a_state_faults_the_job(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    node.deadline_s = 3
    stub.fault("checkpoint", 0, pid=ranks[0].pid, delay_ms=60_000)
    stub.fault("state", 0, pid=ranks[0].pid, delay_ms=60_000, count=-1)

    saved = await node.save()

    assert saved.context is Context.FAULTED
    assert {stub.state(rank.pid) for rank in ranks[1:]} == {RUNNING}


async def test_a_lock_that_an_earlier_agent_left_is_taken_over(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    stub.fault("lock", 401, pid=ranks[1].pid, state=LOCKED)
    stub.fault("lock", 401, pid=ranks[2].pid)

    saved = await node.save()

    # The one is adopted, the other was refused for no reason.
    assert saved.context is Context.RESIDENT
    assert f"process {ranks[2].pid}" in saved.error
    assert f"process {ranks[1].pid}" not in saved.error
    assert await runs_on(stub, ranks, before)


async def test_a_process_that_ends_while_its_work_is_waited_for_holds_nobody_up(
    node: Node, stub: Stub
) -> None:
    ranks = four_ranks(stub)
    stub.fault("lock", 600, pid=ranks[0].pid, delay_ms=1000)

    saving = asyncio.create_task(node.save())
    await asyncio.to_thread(stub.wait_until_asked, "lock", ranks[0].pid)
    ranks[0].kill()
    saved = await saving

    assert saved.context is Context.SAVED, saved
    assert {stub.state(rank.pid) for rank in ranks[1:]} == {CHECKPOINTED}


async def test_a_process_that_ends_while_it_is_saved_does_not_hold_the_others_up(
    node: Node, stub: Stub
) -> None:
    ranks = four_ranks(stub)
    stub.fault("checkpoint", 0, pid=ranks[0].pid, delay_ms=60_000)

    saving = asyncio.create_task(node.save())
    await asyncio.to_thread(stub.wait_until_asked, "checkpoint", ranks[0].pid)
    ranks[0].kill()
    start = time.monotonic()
    saved = await saving

    assert saved.context is Context.SAVED, saved
    assert time.monotonic() - start < 10
    assert {stub.state(rank.pid) for rank in ranks[1:]} == {CHECKPOINTED}


async def test_a_restore_that_fails_otherwise_leaves_the_job_saved(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    await node.saved()
    stub.fault("restore", 1, pid=ranks[3].pid, delay_ms=300)

    back = await node.bring()

    assert (back.context, {stub.state(rank.pid) for rank in ranks}) == (Context.SAVED, {CHECKPOINTED})
    assert "legacy CUDA IPC" in back.error
    assert (await node.bring()).ok
    assert await runs_on(stub, ranks, before)


async def test_an_unlock_that_was_carried_out_though_it_failed_counts(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    await node.saved()
    stub.fault("unlock", 304, pid=ranks[3].pid, after=True)

    assert (await node.bring()).ok
    assert await runs_on(stub, ranks, before)
    assert len(stub.asked("unlock", ranks[3].pid)) == 1


async def test_a_helper_that_cannot_start_the_driver_leaves_the_job_alone(node: Node, stub: Stub) -> None:
    ranks = four_ranks(stub)
    before = [rank.ask("hash") for rank in ranks]
    stub.fault("init", 100, count=-1)

    saved = await node.save()

    assert saved.context is Context.RESIDENT, saved
    assert "cuInit: error 100" in saved.error
    assert await runs_on(stub, ranks, before)
