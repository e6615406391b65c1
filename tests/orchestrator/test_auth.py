"""Who may do what by the token of a job; and where no authentication is allowed."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from slurm_interleave.client.connect import token_metadata
from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from slurm_interleave.orchestrator.config import OrchestratorConfig
from tests.orchestrator.fake_agent import FakeAgent, refusal
from tests.orchestrator.serving import Client, Code, code_of


async def test_a_job_may_act_by_its_token(client: Client, n1: FakeAgent) -> None:
    mine = token_metadata(await n1.start("d", "other", 1))

    assert (await client.granted("d", "other", metadata=mine)).epoch == 1
    assert (await client.lock("d", "other", metadata=mine)).success
    assert await client.end("d", 1, "other", metadata=mine) == 0


async def test_a_job_may_not_act_for_another(client: Client, n1: FakeAgent) -> None:
    mine = token_metadata(await n1.start("d", "other", 1))

    assert await code_of(client.granted("a", metadata=mine)) is Code.PERMISSION_DENIED
    assert await code_of(client.lock("a", metadata=mine)) is Code.PERMISSION_DENIED
    assert await code_of(client.unlock("a", metadata=mine)) is Code.PERMISSION_DENIED
    assert await code_of(client.end("nobody", metadata=mine)) is Code.PERMISSION_DENIED


async def test_a_wrong_token_is_not_believed(client: Client, n1: FakeAgent) -> None:
    assert await code_of(client.granted("a", metadata=token_metadata("wrong"))) is Code.UNAUTHENTICATED


async def test_the_token_of_a_job_that_is_over_is_worth_nothing(client: Client, n1: FakeAgent) -> None:
    mine = token_metadata(await n1.start("d", "other", 1))
    await n1.end("d")
    await n1.start("e", "other", 1)

    assert await code_of(client.granted("d", "other", metadata=mine)) is Code.UNAUTHENTICATED


async def test_a_job_sees_the_groups_of_its_user_alone(client: Client, n1: FakeAgent) -> None:
    mine = token_metadata(await n1.start("d", "other", 1, uid=1001))
    await client.granted("a")

    assert [group.name for group in (await client.status(metadata=mine)).groups] == ["other"]
    assert await code_of(client.status("demo", metadata=mine)) is Code.NOT_FOUND
    listed = await client.v1.ListGroups(ts.ListGroupsRequest(), metadata=mine)
    assert list(listed.group_ids) == ["other"]
    wanted = ts.GetGroupStatusRequest(group_id="demo")
    assert await code_of(client.v1.GetGroupStatus(wanted, metadata=mine)) is Code.NOT_FOUND
    assert await client.slices(metadata=mine) == []
    await client.granted("d", "other", metadata=mine)
    assert [row.job_id for row in await client.slices(metadata=mine)] == ["d"]
    await client.end("a")
    assert await client.days(metadata=mine) == []
    await client.end("d", 0, "other", metadata=mine)
    assert [day.slice.job_id for day in await client.days(metadata=mine)] == ["d"]
    assert await client.days(metadata=mine, job_ids=["a"]) == []


def calls_about(client: Client, group: str, metadata: Any) -> dict[str, Any]:
    """Return all calls that name a group, and that job d may make."""
    who = pb.NoticesRequest(job_id="d", group=group)
    both = pb.AcquireRequest(job_id="d", group="other", also=[group])
    return {
        "acquire": client.acquire("d", group, metadata=metadata).read(),
        "both": client.ours.Acquire(both, metadata=metadata).read(),
        "yield": client.end("d", 0, group, metadata=metadata),
        "notices": client.ours.Notices(who, metadata=metadata).read(),
        "clear": client.ours.Clear(pb.ClearRequest(job_id="d", group=group), metadata=metadata),
        "status": client.status(group, metadata=metadata),
        "lock": client.lock("d", group, metadata=metadata),
        "unlock": client.unlock("d", group, metadata=metadata),
        "group": client.v1.GetGroupStatus(ts.GetGroupStatusRequest(group_id=group), metadata=metadata),
    }


@pytest.mark.parametrize("who", ["a job of another group", "nobody"])
async def test_no_answer_tells_a_foreign_group_from_one_that_is_not(
    client: Client, n1: FakeAgent, who: str
) -> None:
    mine = token_metadata(await n1.start("d", "other", 1, uid=1001) if who != "nobody" else "wrong")
    await client.granted("a")
    heard: dict[str, dict[str, tuple[Any, ...]]] = {}
    for group in ("demo", "nonesuch"):
        for name, call in calls_about(client, group, mine).items():
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            error = caught.value
            text = (error.details() or "").replace(group, "GROUP")
            heard.setdefault(name, {})[group] = (error.code(), text, error.trailing_metadata())

    assert [name for name, said in heard.items() if said["demo"] != said["nonesuch"]] == []
    codes = {said["demo"][0] for said in heard.values()}
    assert codes == {Code.UNAUTHENTICATED if who == "nobody" else Code.NOT_FOUND}


async def test_a_job_may_not_play_the_agent(client: Client, n1: FakeAgent) -> None:
    mine = token_metadata(await n1.start("d", "other", 1))

    assert await refusal(client.address, mine) is Code.PERMISSION_DENIED


@pytest.mark.parametrize("listen", ["0.0.0.0:50051", "[::]:50051", "head:50051", "10.0.0.1:50051"])
def test_without_authentication_it_listens_on_loopback_alone(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"set auth = 'munge' or listen on 127\.0\.0\.1"):
        OrchestratorConfig(listen=listen, auth="none")


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:1", "localhost:1", "unix:/run/x.sock"])
def test_on_loopback_it_may_be_without(listen: str) -> None:
    assert OrchestratorConfig(listen=listen, auth="none").auth == "none"


def test_an_unknown_way_of_authentication_is_refused() -> None:
    with pytest.raises(ConfigError, match="'nonee' is not known; known are 'munge' and 'none'"):
        OrchestratorConfig(auth="nonee")
