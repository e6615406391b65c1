"""The lock service of the wire that existing RL clients speak, line by line."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import grpc
import pytest

from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client, Code, eventually

State = ts.GroupStatus.State


async def refused(call: Any) -> tuple[Code, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


@pytest.mark.parametrize("method", ["lock", "unlock"])
async def test_an_unknown_group_is_not_found_and_nothing_is_queued(
    client: Client, n1: FakeAgent, method: str
) -> None:
    code, text = await refused(getattr(client, method)("a", "nonesuch"))

    assert code is Code.NOT_FOUND
    assert "nonesuch" in text
    assert (await refused(client.group("nonesuch")))[0] is Code.NOT_FOUND
    assert list((await client.v1.ListGroups(ts.ListGroupsRequest())).group_ids) == ["demo"]


@pytest.mark.parametrize(("job", "group"), [("", "demo"), ("a", ""), ("", "")])
@pytest.mark.parametrize("method", ["lock", "unlock"])
async def test_empty_ids_are_invalid(
    client: Client, n1: FakeAgent, method: str, job: str, group: str
) -> None:
    assert (await refused(getattr(client, method)(job, group)))[0] is Code.INVALID_ARGUMENT


async def test_a_job_that_is_not_registered_is_not_found(client: Client, n1: FakeAgent) -> None:
    code, text = await refused(client.lock("stranger"))

    assert code is Code.NOT_FOUND
    assert "not registered" in text


async def test_a_job_without_a_process_on_the_device_is_granted(client: Client, n1: FakeAgent) -> None:
    reply = await client.lock("a")

    assert reply.success
    assert not reply.context_restored
    assert n1.orders == []


async def test_it_blocks_until_the_grant_and_says_how_long(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")
    began = time.monotonic()
    waiting = asyncio.ensure_future(client.lock("b"))
    await client.waiting(1)
    queued = time.monotonic()
    assert await asyncio.wait({waiting}, timeout=0.05) == (set(), {waiting})
    seen = (time.monotonic() - queued) * 1000

    await client.unlock("a")

    reply = await waiting
    waited = (time.monotonic() - began) * 1000
    assert reply.success
    assert seen - 1 <= reply.waited_ms <= waited + 1


async def test_the_holder_acquires_again_without_being_counted_and_one_yield_frees_it(
    client: Client, n1: FakeAgent
) -> None:
    await client.lock("a")

    assert (await client.lock("a")).success
    assert (await client.group()).group.waiter_queue_depth == 0

    await client.unlock("a")
    assert (await client.group()).group.locking_job == ""


async def test_the_same_job_queued_twice_has_one_place_and_both_calls_complete(
    client: Client, n1: FakeAgent
) -> None:
    await client.lock("a")
    first = asyncio.ensure_future(client.lock("b"))
    await client.waiting(1)
    third = asyncio.ensure_future(client.lock("c"))
    await client.waiting(2)
    second = asyncio.ensure_future(client.lock("b"))
    await asyncio.wait({second}, timeout=0.05)
    assert (await client.group()).group.waiter_queue_depth == 2

    await client.unlock("a")

    assert (await first).success
    assert (await second).success
    assert not third.done()
    await client.unlock("b")
    assert (await third).success


async def test_a_deadline_takes_the_waiter_out_of_the_queue(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")

    assert (await refused(client.lock("b", timeout=0.1)))[0] is Code.DEADLINE_EXCEEDED

    await client.waiting(0)


async def test_the_orchestrator_gives_up_before_its_answer_would_come_too_late(
    client: Client, n1: FakeAgent
) -> None:
    await client.lock("a")

    # One is enough: on a busy machine the client's own clock may be first now and then.
    said = [(await refused(client.lock("b", timeout=0.1)))[1] for _ in range(5)]

    assert any("were not granted in time" in text for text in said)


async def test_a_cancel_takes_the_waiter_out_of_the_queue(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")
    call = client.lock("b")
    await client.waiting(1)

    call.cancel()

    await client.waiting(0)
    with contextlib.suppress(asyncio.CancelledError):
        await call


async def test_a_client_that_vanishes_leaves_no_ghost_in_the_queue(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")
    other = Client(client.address)
    ghost = asyncio.ensure_future(other.lock("b"))
    await client.waiting(1)
    third = asyncio.ensure_future(client.lock("c"))
    await client.waiting(2)

    await other.channel.close()
    await asyncio.gather(ghost, return_exceptions=True)
    await client.unlock("a")

    assert (await asyncio.wait_for(third, 30)).success


async def test_a_grant_that_races_with_the_deadline_is_given_back(client: Client, n1: FakeAgent) -> None:
    codes = []
    for number in range(60):
        await client.lock("a")
        racing = client.lock("b", timeout=0.04)
        await asyncio.sleep(0.0005 * number)
        await client.unlock("a")
        codes.append(await racing.code())
        if codes[-1] is Code.OK:
            await client.unlock("b")
        await asyncio.wait_for(client.lock("c"), 30)
        await client.unlock("c")

    assert set(codes) == {Code.OK, Code.DEADLINE_EXCEEDED}


async def test_a_faulted_job_hears_why_and_the_others_carry_on(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")
    await client.unlock("a")
    n1.answers = False
    waiting = asyncio.ensure_future(client.lock("b"))
    order = await n1.next_order()
    await n1.start("d", "demo", 1)
    await n1.done(order, ok=False, context="faulted", error="driver crashed")

    async def faulted() -> bool:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await client.lock("a", timeout=1)
            return False
        return True

    await eventually(faulted)
    code, text = await refused(client.lock("a"))
    assert code is Code.FAILED_PRECONDITION
    assert "driver crashed" in text
    assert (await client.lock("d")).success
    await n1.end("a")
    assert (await asyncio.wait_for(waiting, 30)).success


async def test_context_restored_is_said_of_a_restore_for_this_grant_alone(
    client: Client, n1: FakeAgent
) -> None:
    for job in "ab":
        await client.lock(job)
        await client.unlock(job)

    assert (await client.lock("a")).context_restored
    assert not (await client.lock("a")).context_restored, "it held the lock already"
    await client.unlock("a")
    assert not (await client.lock("a")).context_restored, "its context was still there"


async def test_a_yield_by_another_is_denied_and_changes_nothing(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")

    assert (await refused(client.unlock("b")))[0] is Code.PERMISSION_DENIED

    assert (await client.group()).group.locking_job == "a"


async def test_a_yield_of_the_free_lock_is_success(client: Client, n1: FakeAgent) -> None:
    assert (await client.unlock("a")).success


async def test_a_repeated_yield_is_success_although_another_holds_by_then(
    client: Client, n1: FakeAgent
) -> None:
    await client.lock("a")
    await client.unlock("a")
    await client.lock("b")

    assert (await client.unlock("a")).success
    assert (await client.group()).group.locking_job == "b"


async def test_a_yield_counts_the_waiters_and_defers_the_snapshot_only_without_any(
    client: Client, n1: FakeAgent
) -> None:
    await client.lock("a")
    alone = await client.unlock("a")
    assert (alone.pending_waiters, alone.snapshot_deferred) == (0, True)
    assert (await client.group()).group.group_state == State.STATE_IDLE_YIELDED

    await client.lock("a")
    waiting = [asyncio.ensure_future(client.lock(job)) for job in "bc"]
    await client.waiting(2)
    pressed = await client.unlock("a")
    assert (pressed.pending_waiters, pressed.snapshot_deferred) == (2, False)
    await waiting[0]
    await client.unlock("b")
    await waiting[1]


async def test_a_yield_returns_before_any_snapshot_has_ended(client: Client, n1: FakeAgent) -> None:
    await client.lock("a")
    waiting = asyncio.ensure_future(client.lock("b"))
    await client.waiting(1)
    n1.answers = False

    assert (await asyncio.wait_for(client.unlock("a"), 30)).success

    order = await n1.next_order()
    assert not waiting.done()
    assert (await client.group()).group.group_state == State.STATE_SWITCHING
    await n1.done(order)
    await waiting
