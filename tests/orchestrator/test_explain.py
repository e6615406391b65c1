"""Who may ask why jobs are paired, and what he is told where that cannot be said."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from slurm_interleave.client.connect import Call, token_metadata
from slurm_interleave.client.core.errors import BadArgument, TooMany, WrongState
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import interleave_v1_pb2_grpc as rpc
from slurm_interleave.orchestrator.auth import Caller, Gate
from slurm_interleave.orchestrator.services.pairing import PairingService
from tests.orchestrator.fake_agent import FakeAgent
from tests.orchestrator.serving import Client, Code, code_of
from tests.placement.world import World


class Known(Gate):
    """Knows who calls."""

    def __init__(self, caller: Caller) -> None:
        self.caller, self.calls = caller, list[Call]()

    async def identify(self, _metadata: Mapping[str, str], call: Call) -> Caller:
        self.calls.append(call)
        return self.caller


@dataclass
class Context:
    def invocation_metadata(self) -> tuple[()]:
        return ()


async def placed(*jobs: tuple[str, int]) -> World:
    world = World()
    for job_id, uid in jobs:
        world.slurm.submit(job_id, f"of-{uid}")
        world.slurm.change(job_id, uid=uid)
    await world.helper.round()
    return world


async def ask(world: World | None, caller: Caller, job_id: str = "") -> pb.ExplainReply:
    gate = Known(caller)
    service = PairingService(gate, world.helper if world else None)
    reply = await service.Explain(pb.ExplainRequest(job_id=job_id), Context())
    assert [call.method for call in gate.calls] == ["Pairing/Explain"]
    return reply


async def test_an_operator_learns_of_all_and_a_user_of_his_own() -> None:
    world = await placed(("1", 7), ("2", 8))
    every = await ask(world, Caller(0, operator=True))
    mine = await ask(world, Caller(7))

    assert world.helper.seen is not None
    assert mine.at == every.at == world.helper.seen.at
    assert [line.split(":")[0] for line in every.lines[:2]] == ["group of-7", "group of-8"]
    assert not [line for line in mine.lines if "of-8" in line]
    with pytest.raises(BadArgument, match=r"job 2 has no place .* or it is not yours"):
        await ask(world, Caller(7), "2")


async def test_where_nothing_can_be_said_it_is_said_why() -> None:
    with pytest.raises(WrongState, match="enabled = false"):
        await ask(None, Caller(0, operator=True))
    with pytest.raises(WrongState, match="has not looked at Slurm's queue yet"):
        await ask(World(), Caller(0, operator=True))


async def test_a_user_asks_one_question_at_a_time_and_operators_as_many_as_they_like() -> None:
    world = await placed(("1", 7))

    async def twice(caller: Caller) -> list[Any]:
        service = PairingService(Known(caller), world.helper)
        questions = [service.Explain(pb.ExplainRequest(), Context()) for _ in "ab"]
        return await asyncio.gather(*questions, return_exceptions=True)

    assert [type(answer) for answer in await twice(Caller(7))] == [pb.ExplainReply, TooMany]
    assert [type(answer) for answer in await twice(Caller(0, operator=True))] == [pb.ExplainReply] * 2


async def test_the_question_is_heard_over_the_wire_and_from_jobs_too(client: Client, n1: FakeAgent) -> None:
    pairing: Any = rpc.PairingStub(client.channel)  # type: ignore[no-untyped-call]
    mine = token_metadata(await n1.start("d", "other", 1))

    for job_id, code in (("", Code.FAILED_PRECONDITION), ("no such", Code.INVALID_ARGUMENT)):
        assert await code_of(pairing.Explain(pb.ExplainRequest(job_id=job_id), metadata=mine)) is code
    assert await code_of(pairing.Explain(pb.ExplainRequest(), metadata=token_metadata("wrong"))) is (
        Code.UNAUTHENTICATED
    )
