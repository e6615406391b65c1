"""Who may do what by MUNGE: users on their own jobs, root on all, nobody without a credential."""

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
from slurm_interleave.client.core.errors import NotTheHolder, WrongState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from tests.orchestrator.fake_agent import FakeAgent, agent, refusal
from tests.orchestrator.munged import credential_of, munged, skewed
from tests.orchestrator.serving import Client, Code, code_of, serving

NOBODY = pwd.getpwnam("nobody").pw_uid


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

    assert "may not speak for node n2" in await refused_link(guarded.address, n1)
    assert "not made for this call of AgentLink/Connect" in await refused_link(guarded.address, renamed)


async def refused_link(address: str, metadata: Any) -> str:
    """Return why an agent is refused. Where that comes before its hello is written, gRPC does not say it."""
    while True:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await FakeAgent(address, "n2", metadata).connect()
        if caught.value.code() is not Code.INTERNAL:
            return str(caught.value.details())


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
            assert await code_of(calling.lock("a", metadata=token_metadata("wrong"))) is Code.UNAUTHENTICATED
            assert await code_of(calling.granted("a")) is Code.UNAUTHENTICATED
        await calling.channel.close()
