"""Status and slices of our own service."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version

import pytest

from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client


async def test_the_status_says_which_release_answers_and_what_time_it_has(client: Client) -> None:
    before = time.time()
    reply = await client.status()

    assert reply.version == version("slurm-interleave")
    assert before <= reply.now <= time.time()


async def test_the_status_shows_groups_members_and_nodes(client: Client, n1: FakeAgent) -> None:
    before = time.time()
    await client.granted("a", phase="train")
    call = client.acquire("b", phase="rollout")
    await client.waiting(1)

    reply = await client.status()

    [group] = reply.groups
    assert (group.name, group.state) == ("demo", "locked")
    assert before <= group.state_since <= time.time()
    members = {member.job_id: member for member in group.members}
    assert (members["a"].epoch, members["a"].phase, members["a"].user) == (1, "train", "alice")
    assert before <= members["a"].held_since <= time.time()
    assert (members["b"].queue_place, members["b"].phase) == (2, "rollout")
    assert before <= members["b"].waiting_since <= time.time()
    assert (members["c"].queue_place, members["c"].epoch) == (0, 0)
    [context] = members["a"].contexts
    assert (context.node, list(context.devices), context.state) == ("n1", [0], "resident")
    [node] = reply.nodes
    assert (node.name, node.connected, node.devices) == ("n1", True, 4)
    call.cancel()


async def test_slices_are_listed_oldest_first_with_those_that_last_and_wait(
    client: Client, n1: FakeAgent
) -> None:
    for job in "ab":
        granted = await client.granted(job, phase="train")
        await client.end(job, granted.epoch)
    await client.granted("a")
    call = client.acquire("c")
    await client.waiting(1)

    listed = await client.slices()

    assert [(row.job_id, row.state, row.epoch) for row in listed] == [
        ("a", "YIELDED", 1),
        ("b", "YIELDED", 2),
        ("a", "RUNNING", 3),
        ("c", "WAITING", 0),
    ]
    first, second, *_ = listed
    assert first.requested <= first.start <= first.end <= second.end
    assert (first.nodes, list(first.devices), first.group) == ("n1", ["n1/0"], "demo")
    assert second.switched
    assert second.switch_bytes == 1024
    assert [row.job_id for row in await client.slices(job_ids=["b"])] == ["b"]
    assert [row.epoch for row in await client.slices(states=["RUNNING", "WAITING"])] == [3, 0]
    assert await client.slices(groups=["nonesuch"]) == []
    assert [row.job_id for row in await client.slices(start=first.end)] == ["b", "a", "c"]
    call.cancel()


async def test_a_slice_says_with_whom_its_devices_were_shared(client: Client, n1: FakeAgent) -> None:
    for job in "aba":
        granted = await client.granted(job)
        await client.end(job, granted.epoch)

    alone, second, third = await client.slices()

    assert (alone.share, alone.off_s, list(alone.partners)) == (1.0, 0.0, [])
    # b began when a had ended, so it had its whole time for itself.
    assert (second.share, list(second.partners)) == (1.0, [])
    assert (third.share, list(third.partners)) == (0.5, ["b"])
    assert third.off_s == pytest.approx(third.requested - alone.end)


async def test_sums_are_those_of_the_slices_and_what_lasts_comes_beside(
    client: Client, n1: FakeAgent
) -> None:
    for job in "abaa":
        granted = await client.granted(job, phase="train")
        await client.end(job, granted.epoch)
    await client.granted("b")

    slices, days = await client.slices(), await client.days()

    assert {day.slice.job_id: day.turns for day in days} == {"a": 3, "b": 1}
    of_a = [one for one in slices if one.job_id == "a"]
    [sums] = [day for day in days if day.slice.job_id == "a"]
    assert sums.held_s == pytest.approx(sum(one.end - one.start for one in of_a))
    assert sums.waited_s == pytest.approx(sum(one.start - one.requested for one in of_a))
    assert sums.slice.switch_bytes == sum(one.switch_bytes for one in of_a)
    assert (sums.day, sums.slice.phase) == (time.strftime("%Y-%m-%d", time.localtime(of_a[-1].end)), "train")
    assert [day.slice.job_id for day in await client.days(groups=["demo"], job_ids=["b"])] == ["b"]
    assert await client.days(accounts=["nonesuch"]) == []
    assert len(await client.days(nodes=["n1"])) == 2


async def test_a_job_that_ends_while_it_holds_is_listed_so(client: Client, n1: FakeAgent) -> None:
    await client.granted("a")
    waiting = asyncio.ensure_future(client.granted("b"))
    await client.waiting(1)

    await n1.end("a")
    await asyncio.wait_for(waiting, 30)

    assert next((row.job_id, row.state) for row in await client.slices()) == ("a", "JOB_ENDED")
