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

from slurm_interleave.client.connect import credentials
from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from slurm_interleave.orchestrator.config import OrchestratorConfig
from tests.orchestrator.fake_agent import FakeAgent, agent, refusal
from tests.orchestrator.munged import credential_of, munged
from tests.orchestrator.serving import Client, serving

Code = grpc.StatusCode
NOBODY = pwd.getpwnam("nobody").pw_uid


async def code_of(call: Any) -> Code:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


def token(text: str) -> tuple[tuple[str, str], ...]:
    return credentials("none", token=text)


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
    async with serving(tmp_path, auth="munge", munge_socket=munge_socket) as orchestrator:
        calling = Client(f"127.0.0.1:{orchestrator.port}")
        async with agent(calling.address, metadata=credentials("munge", munge_socket)) as n1:
            await n1.start("roots", uid=0)
            await n1.start("nobodys", uid=NOBODY)
            yield calling
        await calling.channel.close()


async def as_nobody(socket: str) -> tuple[tuple[str, str], ...]:
    return (("interleave-munge", await asyncio.to_thread(credential_of, NOBODY, socket)),)


@pytest.mark.slurm
async def test_nobody_gets_in_without_a_proof(guarded: Client) -> None:
    assert await code_of(guarded.granted("roots")) is Code.UNAUTHENTICATED
    assert await code_of(guarded.lock("roots")) is Code.UNAUTHENTICATED
    assert await code_of(guarded.status()) is Code.UNAUTHENTICATED
    forged = (("interleave-munge", "MUNGE:AwQFAACforged:"),)
    assert await code_of(guarded.status(metadata=forged)) is Code.UNAUTHENTICATED


@pytest.mark.slurm
async def test_a_credential_is_good_once(guarded: Client, munge_socket: str) -> None:
    mine = credentials("munge", munge_socket)
    assert len((await guarded.status(metadata=mine)).groups) == 1

    assert await code_of(guarded.status(metadata=mine)) is Code.UNAUTHENTICATED


@pytest.mark.slurm
@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")
async def test_a_user_acts_on_his_own_jobs_alone(guarded: Client, munge_socket: str) -> None:
    granted = await guarded.granted("nobodys", metadata=await as_nobody(munge_socket))
    assert granted.epoch == 1

    strange = guarded.granted("roots", metadata=await as_nobody(munge_socket))
    assert await code_of(strange) is Code.PERMISSION_DENIED
    ended = await guarded.end("nobodys", 1, metadata=credentials("munge", munge_socket))
    assert ended == 0, "root may end anybody's lease"


@pytest.mark.slurm
@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as two users")
async def test_a_user_may_not_play_the_agent(guarded: Client, munge_socket: str) -> None:
    assert await refusal(guarded.address, await as_nobody(munge_socket)) is Code.PERMISSION_DENIED


@pytest.mark.slurm
async def test_the_open_lock_service_asks_for_nothing_and_the_rest_does(
    tmp_path: Path, munge_socket: str
) -> None:
    async with serving(tmp_path, auth="munge", munge_socket=munge_socket, v1alpha1_open=True) as orchestrator:
        calling = Client(f"127.0.0.1:{orchestrator.port}")
        async with agent(calling.address, metadata=credentials("munge", munge_socket)) as n1:
            await n1.start("a")
            assert (await calling.lock("a")).success
            assert await code_of(calling.lock("a", metadata=token("wrong"))) is Code.UNAUTHENTICATED
            assert await code_of(calling.granted("a")) is Code.UNAUTHENTICATED
        await calling.channel.close()
