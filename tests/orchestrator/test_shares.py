"""Nobody has so many calls under way that others come to no turn of the orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from slurm_interleave.client.core.errors import TooMany
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.orchestrator import arbiter
from slurm_interleave.orchestrator.auth import Caller, Gate
from slurm_interleave.orchestrator.daemon import Orchestrator
from slurm_interleave.orchestrator.services import interleave
from slurm_interleave.orchestrator.shares import Shares
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client, eventually

FEW = 3
ALICE, BOB = Caller(1000), Caller(1001)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleave, "PER_USER", FEW)
    monkeypatch.setattr(arbiter, "ACQUIRES_MAX", FEW)


def test_a_call_counts_for_whom_it_is_and_while_it_lasts() -> None:
    shares = Shares(2, "calls")
    for _ in range(5):
        with shares.one_of("a"), shares.one_of("a"):
            with pytest.raises(TooMany, match="a has 2 calls under way"), shares.one_of("a"):
                pass
            with shares.one_of("b"):
                pass
    assert not shares._open


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> list[Caller]:
    """Who makes the next calls."""
    now = [ALICE]

    async def identify(*_: object) -> Caller:
        return now[0]

    monkeypatch.setattr(Gate, "identify", identify)
    return now


async def status_of(call: AsyncIterator[object]) -> grpc.StatusCode:
    try:
        await anext(aiter(call))
    except grpc.aio.AioRpcError as error:
        return error.code()
    except StopAsyncIteration:
        pass
    return grpc.StatusCode.OK


async def test_a_user_with_too_many_watches_has_no_more_and_others_and_operators_do(
    orchestrator: Orchestrator, client: Client, caller: list[Caller]
) -> None:
    watch, report = client.ours.Watch, client.ours.ListSlices
    watches = [watch(pb.StatusRequest()) for _ in range(FEW)]
    assert [await status_of(each) for each in watches] == [grpc.StatusCode.OK] * FEW

    for call in (watch(pb.StatusRequest()), report(pb.ListSlicesRequest())):
        assert await status_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
    for caller[0] in (BOB, Caller(None, operator=True)):
        assert await status_of(report(pb.ListSlicesRequest())) is grpc.StatusCode.OK
    caller[0] = ALICE
    watches[0].cancel()

    async def may_again() -> bool:
        return await status_of(watch(pb.StatusRequest())) is grpc.StatusCode.OK

    await eventually(may_again)


async def test_a_job_with_too_many_acquires_has_no_more_and_keeps_those(
    orchestrator: Orchestrator, n1: FakeAgent, client: Client
) -> None:
    await client.lock("a")
    waiting = [asyncio.ensure_future(client.lock("b")) for _ in range(FEW)]

    async def are_there() -> bool:
        return orchestrator.arbiter._shares._open["job b"] == FEW

    await eventually(are_there)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.lock("b")
    await client.unlock("a")
    await asyncio.wait_for(asyncio.gather(*waiting), 30)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
