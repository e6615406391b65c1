"""An acquire in one message, for turns that come soon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator.daemon import Orchestrator
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client, eventually

GRACE = "slurm_interleave.orchestrator.core.calls.RETURN_GRACE_S"


def soon(client: Client, job: str, patience_s: float = 10.0) -> Any:
    return client.ours.AcquireSoon(pb.AcquireRequest(job_id=job, group="demo", patience_s=patience_s))


async def grant_while_away(client: Client) -> None:
    """End the turn of a, for which b has waited; b is between two calls."""
    await client.granted("a")
    await soon(client, "b", 0.01)
    await client.end("a", 1)


async def no_place_is_kept(orchestrator: Orchestrator) -> None:
    """Wait until the orchestrator keeps no place for anybody any more."""

    async def so() -> bool:
        return not orchestrator.arbiter.core.state.attached.away

    await eventually(so)


async def test_free_devices_are_granted_in_one_message(client: Client, n1: FakeAgent) -> None:
    first = await soon(client, "a")

    assert first.granted.epoch == 1
    assert await client.end("a", 1) == 0


async def test_a_turn_that_comes_in_time_is_granted_in_one_message(client: Client, n1: FakeAgent) -> None:
    await client.granted("a")
    waiting = asyncio.ensure_future(soon(client, "b"))
    await client.waiting(1)

    await client.end("a")

    assert (await waiting).granted.epoch == 2


async def test_who_is_out_of_patience_keeps_his_place_for_the_acquire_that_follows(
    client: Client, n1: FakeAgent
) -> None:
    await client.granted("a")
    assert not (await soon(client, "b", 0.01)).HasField("granted")
    third = asyncio.create_task(client.granted("c"))
    await client.waiting(2)
    second = asyncio.create_task(client.granted("b"))

    await client.end("a")

    assert (await second).epoch == 2
    await client.end("b")
    await third


async def test_a_grant_between_the_two_calls_is_that_of_the_second(client: Client, n1: FakeAgent) -> None:
    await grant_while_away(client)
    await client.held_by("b")

    assert (await client.granted("b")).epoch == 2
    assert await client.end("b", 2) == 0


async def test_who_goes_while_he_waits_leaves_the_queue(client: Client, n1: FakeAgent) -> None:
    await client.granted("a")
    waiting = soon(client, "b")
    await client.waiting(1)

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    await client.waiting(0)
    await client.end("a")
    assert (await client.granted("c")).epoch == 2


async def test_who_does_not_come_back_loses_his_place(
    client: Client, n1: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GRACE, 0.05)
    await client.granted("a")
    await soon(client, "b", 0.01)

    await client.waiting(0)

    await client.end("a")
    assert (await client.granted("c")).epoch == 2


async def test_a_grant_that_nobody_comes_back_for_is_given_back_and_ends_in_one_slice(
    client: Client, n1: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GRACE, 0.2)
    await grant_while_away(client)
    await client.held_by("b")

    await client.held_by("")

    async def both_are_written() -> bool:
        return len(await client.slices()) == 2

    await eventually(both_are_written)
    assert [(row.job_id, row.epoch, row.state) for row in await client.slices()] == [
        ("a", 1, "YIELDED"),
        ("b", 2, "YIELDED"),
    ]
    assert (await client.granted("c")).epoch == 3


async def test_a_grant_that_is_taken_in_time_is_not_given_back(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GRACE, 0.2)
    await grant_while_away(client)
    await client.held_by("b")
    assert (await client.granted("b")).epoch == 2

    await no_place_is_kept(orchestrator)

    assert (await client.group()).group.locking_job == "b"
    assert await client.end("b", 2) == 0
    assert [row.epoch for row in await client.slices()] == [1, 2]


async def test_a_grant_that_is_taken_and_yielded_is_not_given_back_twice(
    orchestrator: Orchestrator, client: Client, n1: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GRACE, 0.2)
    await grant_while_away(client)
    await client.granted("b")
    await client.end("b", 2)
    assert (await client.granted("b")).epoch == 3

    await no_place_is_kept(orchestrator)

    assert (await client.group()).group.locking_job == "b"
    assert await client.end("b", 3) == 0
    assert [row.epoch for row in await client.slices()] == [1, 2, 3]
