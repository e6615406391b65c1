"""Who may do what: jobs by their token, users by MUNGE, nobody without either."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.cli.link import orchestrator
from slurm_interleave.client.connect import Call, Metadata, credentials, token_metadata
from slurm_interleave.client.core.errors import ConfigError, NotTheHolder, WrongState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from slurm_interleave.orchestrator.config import OrchestratorConfig
from tests.orchestrator.fake_agent import FakeAgent, agent, refusal
from tests.orchestrator.munged import credential_of, munged, skewed
from tests.orchestrator.serving import Client, serving

Code = grpc.StatusCode
NOBODY = pwd.getpwnam("nobody").pw_uid


async def code_of(call: Any) -> Code:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


def token(text: str) -> tuple[tuple[str, str], ...]:
    return token_metadata(text)


async def test_a_job_may_act_by_its_token(client: Client, n1: FakeAgent) -> None:
    mine = token(await n1.start("d", "other", 1))

    assert (await client.granted("d", "other", metadata=mine)).epoch == 1
    assert (await client.lock("d", "other", metadata=mine)).success
    assert await client.end("d", 1, "other", metadata=mine) == 0


async def test_a_job_may_not_act_for_another(client: Client, n1: FakeAgent) -> None:
    mine = token(await n1.start("d", "other", 1))

    assert await code_of(client.granted("a", metadata=mine)) is Code.PERMISSION_DENIED
    assert await code_of(client.lock("a", metadata=mine)) is Code.PERMISSION_DENIED
    assert await code_of(client.unlock("a", metadata=mine)) is Code.PERMISSION_DENIED
    assert await code_of(client.end("nobody", metadata=mine)) is Code.PERMISSION_DENIED


async def test_a_wrong_token_is_not_believed(client: Client, n1: FakeAgent) -> None:
    assert await code_of(client.granted("a", metadata=token("wrong"))) is Code.UNAUTHENTICATED


async def test_the_token_of_a_job_that_is_over_is_worth_nothing(client: Client, n1: FakeAgent) -> None:
    mine = token(await n1.start("d", "other", 1))
    await n1.end("d")
    await n1.start("e", "other", 1)

    assert await code_of(client.granted("d", "other", metadata=mine)) is Code.UNAUTHENTICATED


async def test_a_job_sees_the_groups_of_its_user_alone(client: Client, n1: FakeAgent) -> None:
    mine = token(await n1.start("d", "other", 1, uid=1001))
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
    mine = token(await n1.start("d", "other", 1, uid=1001) if who != "nobody" else "wrong")
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
    mine = token(await n1.start("d", "other", 1))

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


@pytest.fixture(scope="module")
def munge_socket() -> Iterator[str]:
    with munged() as socket:
        yield socket


@pytest.fixture
async def guarded(tmp_path: Path, munge_socket: str) -> AsyncIterator[Client]:
    """An orchestrator that asks for MUNGE, with one job of root and one of nobody."""
    async with serving(tmp_path, auth="munge", munge_socket=munge_socket) as running:
        calling = Client(f"127.0.0.1:{running.port}")
        async with agent(calling.address, metadata=as_root(N1, munge_socket)) as n1:
            await n1.start("roots", uid=0)
            await n1.start("nobodys", uid=NOBODY)
            yield calling
        await calling.channel.close()


N1 = Call("AgentLink/Connect", node="n1")
STATUS = Call("Interleave/GetStatus", pb.StatusRequest())


def acquire_of(job: str) -> Call:
    return Call("Interleave/Acquire", pb.AcquireRequest(job_id=job, group="demo"))


def as_root(call: Call, socket: str) -> Metadata:
    return credentials(call, "munge", socket)


async def as_nobody(call: Call, socket: str) -> Metadata:
    credential = await asyncio.to_thread(credential_of, NOBODY, socket, call.payload())
    node: Metadata = (("interleave-node", call.node),) if call.node else ()
    return (("interleave-munge", credential), *node)


async def refused(call: Any) -> str:
    """Return the text with which a caller is told that he did not prove who he is."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is Code.UNAUTHENTICATED
    return str(caught.value.details())


@pytest.mark.slurm
async def test_nobody_gets_in_without_a_proof(guarded: Client) -> None:
    assert await code_of(guarded.granted("roots")) is Code.UNAUTHENTICATED
    assert await code_of(guarded.lock("roots")) is Code.UNAUTHENTICATED
    assert await code_of(guarded.status()) is Code.UNAUTHENTICATED
    forged = (("interleave-munge", "MUNGE:AwQFAACforged:"),)
    assert await code_of(guarded.status(metadata=forged)) is Code.UNAUTHENTICATED


@pytest.mark.slurm
async def test_a_credential_is_good_once(guarded: Client, munge_socket: str) -> None:
    mine = as_root(STATUS, munge_socket)
    assert len((await guarded.status(metadata=mine)).groups) == 1

    assert "used before" in await refused(guarded.status(metadata=mine))


@pytest.mark.slurm
@pytest.mark.parametrize(
    "call",
    [
        Call("Interleave/Watch", pb.StatusRequest()),
        Call("Interleave/GetStatus", pb.StatusRequest(group="demo")),
        Call("Interleave/Revoke", pb.RevokeRequest(job_id="roots", group="demo")),
        N1,
    ],
    ids=lambda call: f"{call.method}-{call.request or call.node}".strip(),
)
async def test_a_credential_is_good_for_its_own_call_alone(
    guarded: Client, munge_socket: str, call: Call
) -> None:
    text = await refused(guarded.status(metadata=as_root(call, munge_socket)))

    assert "was not made for this call of Interleave/GetStatus" in text


@pytest.mark.slurm
async def test_the_credential_of_a_lock_is_good_for_its_own_job_alone(
    guarded: Client, munge_socket: str
) -> None:
    def lock(job: str) -> Metadata:
        request = ts.AcquireRequest(job_id=job, group_id="demo")
        return as_root(Call("TimeSliceOrchestratorService/Acquire", request), munge_socket)

    assert "not made for this call" in await refused(guarded.lock("roots", metadata=lock("nobodys")))
    assert "not made for this call" in await refused(guarded.unlock("roots", metadata=lock("roots")))
    assert (await guarded.lock("roots", metadata=lock("roots"))).success


@pytest.mark.slurm
async def test_the_credential_of_an_agent_is_good_for_its_own_node_alone(
    guarded: Client, munge_socket: str
) -> None:
    n1, moved = as_root(N1, munge_socket), as_root(N1, munge_socket)
    renamed = (moved[0], ("interleave-node", "n2"))

    with pytest.raises(grpc.aio.AioRpcError, match="may not speak for node n2"):
        await FakeAgent(guarded.address, "n2", n1).connect()
    with pytest.raises(grpc.aio.AioRpcError, match="not made for this call of AgentLink/Connect"):
        await FakeAgent(guarded.address, "n2", renamed).connect()


@pytest.mark.slurm
async def test_all_that_the_commands_ask_is_believed(guarded: Client, munge_socket: str) -> None:
    environ = {"INTERLEAVE_CLIENT_MUNGE_SOCKET": munge_socket, "INTERLEAVE_CLIENT_AUTH": "munge"}

    def ask() -> None:
        with orchestrator(None, guarded.address, environ) as link:
            assert [group.name for group in link.status("demo").groups] == ["demo"]
            assert list(link.list_slices(pb.ListSlicesRequest())) == []
        with pytest.raises(NotTheHolder), orchestrator(None, guarded.address, environ) as link:
            link.revoke("roots", "demo")
        with pytest.raises(WrongState), orchestrator(None, guarded.address, environ) as link:
            link.clear("roots", "demo")

    await asyncio.to_thread(ask)


@pytest.mark.slurm
@pytest.mark.parametrize(("seconds", "reason"), [(-1000, "more than five minutes old"), (1000, "future")])
async def test_a_credential_of_a_wrong_clock_is_refused_with_what_to_do(
    tmp_path: Path, seconds: int, reason: str
) -> None:
    secret = os.urandom(128)
    with munged(secret) as here, munged(secret, skewed(tmp_path, seconds)) as there:
        async with serving(tmp_path, auth="munge", munge_socket=here) as running:
            calling = Client(f"127.0.0.1:{running.port}")
            text = await refused(calling.status(metadata=as_root(STATUS, there)))
            await calling.channel.close()

    assert reason in text
    assert "check the time (NTP) of both hosts" in text


@pytest.mark.slurm
async def test_a_credential_of_another_cluster_is_refused_with_what_to_do(
    guarded: Client, tmp_path: Path
) -> None:
    with munged() as elsewhere:
        text = await refused(guarded.status(metadata=as_root(STATUS, elsewhere)))

    assert "the MUNGE keys of the two hosts differ" in text


@pytest.mark.slurm
@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")
async def test_a_user_acts_on_his_own_jobs_alone(guarded: Client, munge_socket: str) -> None:
    granted = await guarded.granted("nobodys", metadata=await as_nobody(acquire_of("nobodys"), munge_socket))
    assert granted.epoch == 1

    strange = guarded.granted("roots", metadata=await as_nobody(acquire_of("roots"), munge_socket))
    assert await code_of(strange) is Code.PERMISSION_DENIED
    request = pb.YieldRequest(job_id="nobodys", group="demo", epoch=1)
    root = as_root(Call("Interleave/Yield", request), munge_socket)
    ended = await guarded.end("nobodys", 1, metadata=root)
    assert ended == 0, "root may end anybody's lease"


@pytest.mark.slurm
@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")
async def test_a_user_may_not_play_the_agent(guarded: Client, munge_socket: str) -> None:
    assert await refusal(guarded.address, await as_nobody(N1, munge_socket)) is Code.PERMISSION_DENIED


@pytest.mark.slurm
async def test_the_open_lock_service_asks_for_nothing_and_the_rest_does(
    tmp_path: Path, munge_socket: str
) -> None:
    async with serving(tmp_path, auth="munge", munge_socket=munge_socket, v1alpha1_open=True) as running:
        calling = Client(f"127.0.0.1:{running.port}")
        async with agent(calling.address, metadata=as_root(N1, munge_socket)) as n1:
            await n1.start("a")
            assert (await calling.lock("a")).success
            assert await code_of(calling.lock("a", metadata=token("wrong"))) is Code.UNAUTHENTICATED
            assert await code_of(calling.granted("a")) is Code.UNAUTHENTICATED
        await calling.channel.close()
