"""The lock service on a job's socket is the orchestrator's, through the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from slurm_interleave.client.connect import CALL_KEY, TOKEN_KEY
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2_grpc as ts_rpc
from slurm_interleave.node_agent import forward
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent.fakes import FakeOrchestrator, environment, start_job

ACQUIRE = ts.AcquireRequest(job_id="17", group_id="demo")
TRAINERS, SAMPLERS = "demo", "demo/sampler"


@pytest_asyncio.fixture
async def stub(agent: Agent, folder: Path) -> AsyncIterator[Any]:
    await start_job(folder)
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_ORCH_ADDR"]) as channel:
        yield ts_rpc.TimeSliceOrchestratorServiceStub(channel)


async def test_a_call_arrives_with_the_jobs_token_and_its_answer_comes_back(
    stub: Any, orchestrator: FakeOrchestrator, folder: Path
) -> None:
    orchestrator.may_answer.set()

    reply = await stub.Acquire(ACQUIRE)

    assert (reply.success, reply.waited_ms) == (True, 7)
    assert orchestrator.metadata["interleave-token"] == environment(folder)["INTERLEAVE_TOKEN"]


async def test_a_status_passes_through_with_its_text_and_class(
    stub: Any, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.refuse_yield = True

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Yield(ts.YieldRequest(job_id="17", group_id="demo"))

    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert caught.value.details() == "job 18 holds it"
    assert ("interleave-error", "NotTheHolder") in tuple(caught.value.trailing_metadata() or ())


async def test_a_cancel_reaches_the_orchestrator(stub: Any, orchestrator: FakeOrchestrator) -> None:
    call = stub.Acquire(ACQUIRE)
    await asyncio.wait_for(orchestrator.acquired.wait(), 30)

    call.cancel()

    await asyncio.wait_for(orchestrator.cancelled.wait(), 30)


async def test_a_deadline_reaches_the_orchestrator(stub: Any, orchestrator: FakeOrchestrator) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Acquire(ACQUIRE, timeout=0.3)

    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await asyncio.wait_for(orchestrator.cancelled.wait(), 30)


async def test_a_call_waits_out_a_restart_of_the_orchestrator(
    stub: Any, orchestrator: FakeOrchestrator
) -> None:
    call = stub.Acquire(ACQUIRE)
    await asyncio.wait_for(orchestrator.acquired.wait(), 30)
    await orchestrator.stop()
    orchestrator.may_answer.set()

    await orchestrator.start()

    assert (await call).success


async def test_a_call_before_the_job_is_known_waits_until_it_is(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.answers_registrations = False
    orchestrator.may_answer.set()
    await start_job(folder)
    started = await orchestrator.hears("started")
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_ORCH_ADDR"]) as channel:
        stub: Any = ts_rpc.TimeSliceOrchestratorServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Acquire(ACQUIRE, timeout=0.2)
        assert not orchestrator.acquired.is_set()

        orchestrator.orders(registered={"job_id": "17", "attempt": started.attempt})

        assert (await stub.Acquire(ACQUIRE)).success


async def test_a_caller_who_goes_is_followed_by_a_yield_of_what_his_call_was_granted(
    stub: Any, orchestrator: FakeOrchestrator
) -> None:
    call = stub.Acquire(ACQUIRE)
    await asyncio.wait_for(orchestrator.acquired.wait(), 30)

    call.cancel()

    said, metadata = await asyncio.wait_for(orchestrator.yields.get(), 30)
    assert (said.job_id, said.group_id) == ("17", "demo")
    assert metadata[CALL_KEY] == orchestrator.metadata[CALL_KEY]
    assert metadata[TOKEN_KEY] == orchestrator.metadata[TOKEN_KEY]


async def test_acquires_given_up_in_an_outage_do_not_pile_up(
    stub: Any, orchestrator: FakeOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "_ABANDON_MAX", 3)
    await orchestrator.stop()
    for _ in range(8):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Acquire(ACQUIRE, timeout=0.2)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    orchestrator.may_answer.set()
    await orchestrator.start()

    assert (await stub.Acquire(ACQUIRE)).success
    heard = [await asyncio.wait_for(orchestrator.yields.get(), 30) for _ in range(3)]
    assert len({metadata[CALL_KEY] for _, metadata in heard}) == 3
    assert orchestrator.yields.empty()


async def turns(stub: Any, orchestrator: FakeOrchestrator, *calls: tuple[str, str]) -> list[str]:
    """Make *calls* one after the other; return the groups whose lease ended."""
    orchestrator.may_answer.set()
    for verb, name in calls:
        message = ts.AcquireRequest if verb == "Acquire" else ts.YieldRequest
        assert (await getattr(stub, verb)(message(job_id="17", group_id=name))).success
    return [orchestrator.yields.get_nowait()[0].group_id for _ in range(orchestrator.yields.qsize())]


async def test_a_job_that_shares_all_its_devices_has_two_names_for_its_group(
    stub: Any, orchestrator: FakeOrchestrator, folder: Path
) -> None:
    variables = environment(folder)
    assert (variables["TIMESLICE_TRAINER_GROUP"], variables["TIMESLICE_SAMPLER_GROUP"]) == (
        TRAINERS,
        SAMPLERS,
    )

    assert await turns(stub, orchestrator, ("Acquire", SAMPLERS), ("Yield", SAMPLERS)) == ["demo"]


async def test_a_lease_ends_when_it_was_yielded_by_each_name_that_acquired_it(
    stub: Any, orchestrator: FakeOrchestrator
) -> None:
    both = [("Acquire", TRAINERS), ("Acquire", SAMPLERS)]

    assert await turns(stub, orchestrator, *both, ("Yield", SAMPLERS)) == []
    assert await turns(stub, orchestrator, ("Yield", TRAINERS)) == ["demo"]
    assert await turns(stub, orchestrator, *both, ("Yield", TRAINERS)) == []
    assert await turns(stub, orchestrator, ("Yield", SAMPLERS)) == ["demo"]


async def test_a_new_agent_lets_a_second_name_end_no_lease_that_the_first_may_hold(
    stub: Any, orchestrator: FakeOrchestrator
) -> None:
    assert await turns(stub, orchestrator, ("Yield", SAMPLERS)) == []
    assert await turns(stub, orchestrator, ("Yield", TRAINERS)) == ["demo"]


async def test_any_other_name_is_the_orchestrators_to_refuse(
    stub: Any, orchestrator: FakeOrchestrator
) -> None:
    assert await turns(stub, orchestrator, ("Yield", "demo/other"), ("Yield", "else")) == [
        "demo/other",
        "else",
    ]


async def test_a_refused_yield_can_be_told_again(stub: Any, orchestrator: FakeOrchestrator) -> None:
    await turns(stub, orchestrator, ("Acquire", SAMPLERS))
    orchestrator.refuse_yield = True
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Yield(ts.YieldRequest(job_id="17", group_id=SAMPLERS))
    orchestrator.refuse_yield = False

    assert await turns(stub, orchestrator, ("Yield", SAMPLERS)) == ["demo", "demo"]


async def test_devices_of_another_component_are_refused_and_those_of_nobody_else_granted_at_once(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder, role="trainer")
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_ORCH_ADDR"]) as channel:
        stub: Any = ts_rpc.TimeSliceOrchestratorServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Acquire(ts.AcquireRequest(job_id="17", group_id=SAMPLERS))

        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "set TIMESLICE_SAMPLER_GROUP=demo/own" in (caught.value.details() or "")
        assert await turns(stub, orchestrator, ("Acquire", "demo/own"), ("Yield", "demo/own")) == []
        assert not orchestrator.acquired.is_set()
