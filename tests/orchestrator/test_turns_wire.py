"""Over the wire: several groups at once, news for holders, an operator's word, and the live view."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from slurm_interleave.client.connect import TOKEN_KEY
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client


async def test_a_holder_hears_that_somebody_waits(client: Client, n1: FakeAgent) -> None:
    await client.granted("a")
    notices = client.ours.Notices(pb.NoticesRequest(job_id="a", group="demo"))
    assert (await notices.read()).waiting == 0

    waiting = client.acquire("b")

    notice = await notices.read()
    assert (notice.waiting, notice.by) == (1, 0.0)
    waiting.cancel()
    notices.cancel()


async def test_who_waits_is_told_of_nobody_until_the_devices_are_his(client: Client, n1: FakeAgent) -> None:
    first = await client.granted("a")
    waiting = client.acquire("b")
    await client.waiting(1)
    third = client.acquire("c")
    await client.waiting(2)
    notices = client.ours.Notices(pb.NoticesRequest(job_id="b", group="demo"))
    assert (await notices.read()).waiting == 0

    await client.end("a", first.epoch)

    assert (await notices.read()).waiting == 1
    late = client.ours.Notices(pb.NoticesRequest(job_id="b", group="demo"))
    assert (await late.read()).waiting == 1
    for call in (waiting, third, notices, late):
        call.cancel()


async def test_an_operator_takes_the_devices_and_the_job_gets_them_back(
    client: Client, n1: FakeAgent
) -> None:
    first = await client.granted("a")
    waiting = client.acquire("b")
    await client.waiting(1)

    await client.ours.Revoke(pb.RevokeRequest(job_id="a", group="demo"))

    assert (await last(waiting)).granted.epoch == first.epoch + 1
    await client.end("b")
    await client.waiting(0)
    assert (await client.group()).group.locking_job == "a"
    await client.end("a", first.epoch)
    assert [row.state for row in await client.slices(job_ids=["a"])] == ["REVOKED", "YIELDED"]


async def test_only_a_holder_can_lose_its_devices(client: Client, n1: FakeAgent) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="nothing to take back"):
        await client.ours.Revoke(pb.RevokeRequest(job_id="a", group="demo"))


async def test_the_live_view_shows_all_at_first_and_then_each_change(client: Client, n1: FakeAgent) -> None:
    watch = client.ours.Watch(pb.StatusRequest())
    assert [(group.name, group.state) for group in (await watch.read()).groups] == [("demo", "idle")]

    await client.granted("a")

    while (seen := (await watch.read()).groups[0]).state != "locked":
        pass
    assert [member.job_id for member in seen.members if member.epoch] == ["a"]
    watch.cancel()


async def last(call: Any) -> Any:
    return [update async for update in call][-1]


async def test_the_end_of_a_group_is_told_to_nobody_who_did_not_see_it(client: Client, n1: FakeAgent) -> None:
    tokens = [await n1.start(job, group, 1, uid=uid) for job, group, uid in (("x", "xs", 7), ("y", "ys", 8))]
    watches = [client.ours.Watch(pb.StatusRequest(), metadata=((TOKEN_KEY, token),)) for token in tokens]
    first = [await watch.read() for watch in watches]
    assert [[group.name for group in update.groups] for update in first] == [["xs"], ["ys"]]

    await n1.end("y")

    while not (gone := (await watches[1].read()).gone):
        pass
    assert list(gone) == ["ys"]
    await n1.start("z", "xs", 1, uid=7)
    names: set[str] = set()
    while "xs" not in names:
        update = await watches[0].read()
        names |= {*update.gone, *(group.name for group in update.groups)}
    assert names == {"xs"}
    for watch in watches:
        watch.cancel()
