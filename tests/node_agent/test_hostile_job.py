"""What a job may say on its socket costs its node's agent little, and other jobs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.core.values import REASON_MAX
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.client.workload import ARENA_KEY, PID_KEY, RANK_KEY, SPILLS_KEY
from slurm_interleave.node_agent import results, sockets
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.contexts import Outcome
from slurm_interleave.node_agent.results import Result, Results
from tests.node_agent.channel import App, has_channel
from tests.node_agent.fakes import FakeOrchestrator, environment, eventually, hook, start_job

LONG = "x" * 4_000_000  # just what gRPC takes in one message
Dial = Any


@pytest_asyncio.fixture
async def dial(agent: Agent, folder: Path) -> AsyncIterator[Dial]:
    """Start a job and return a channel to its socket."""
    opened = []

    async def call(job: str) -> grpc.aio.Channel:
        await start_job(folder, job)
        opened.append(grpc.aio.insecure_channel(environment(folder, job)["TIMESLICE_AGENT_ADDR"]))
        return opened[-1]

    yield call
    for channel in opened:
        await channel.close()


async def refused(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def test_a_long_error_of_an_application_does_not_part_its_node_from_the_orchestrator(
    dial: Dial, agent: Agent, orchestrator: FakeOrchestrator
) -> None:
    app = App(v1_rpc.SnapshotAgentServiceStub(await dial("17")))
    await app.register()
    await has_channel(agent)
    orchestrator.operate("SNAPSHOT", "17", "1-1")
    await app.answers(await app.hears(), LONG)

    done = await orchestrator.hears("done")
    await orchestrator.stop()
    await orchestrator.start()
    hello = await orchestrator.hears("hello")

    assert (done.ok, done.error) == (False, "x" * REASON_MAX)
    assert [job.job_id for job in hello.jobs] == ["17"]


def test_no_outcome_has_a_reason_longer_than_the_orchestrator_takes() -> None:
    assert Outcome(Context.FAULTED, error=LONG).error == "x" * REASON_MAX


async def test_a_job_learns_nothing_of_the_operations_of_another(
    dial: Dial, orchestrator: FakeOrchestrator
) -> None:
    own, other = [v1_rpc.SnapshotAgentServiceStub(await dial(job)) for job in ("17", "18")]
    await orchestrator.asks("SNAPSHOT", "18", "1-1")
    request = v1.GetOperationRequest(operation_id="1-1")

    assert (await other.GetOperation(request)).status == v1.OPERATION_STATUS_COMPLETE
    assert await refused(own.GetOperation(request)) is grpc.StatusCode.NOT_FOUND


async def test_many_operations_of_one_job_make_none_of_another_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "_KEPT", 10)
    kept, under_way = Results(), asyncio.get_running_loop().create_future()
    ended = asyncio.get_running_loop().create_future()
    ended.set_result(Result(Outcome(Context.SAVED)))

    for number in range(3):
        kept.keep(f"other-{number}", "18", ended)
    kept.keep("first", "17", under_way)
    for number in range(100):
        kept.keep(f"{number}", "17", ended)

    assert [kept.get(f"other-{number}", "18") for number in range(3)] == [ended] * 3
    assert kept.get("first") is under_way
    assert [number for number in range(100) if kept.get(f"{number}")] == list(range(94, 100))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (PID_KEY, "9" * 5000),
        (PID_KEY, "-1"),
        (ARENA_KEY, "9" * 5000),
        (ARENA_KEY, str(1 << 60)),
        (SPILLS_KEY, "x"),
        (RANK_KEY, "3/2"),
        (RANK_KEY, "1/2000"),
        (RANK_KEY, "1/" + "9" * 5000),
    ],
    ids=lambda text: text[:20],
)
async def test_what_a_stream_says_of_its_rank_that_cannot_be_is_refused(
    dial: Dial, key: str, value: str
) -> None:
    stream = v1_rpc.SnapshotAgentServiceStub(await dial("17")).WorkloadChannel(metadata=((key, value),))
    await stream.write(v1.WorkloadMessage(register=v1.RegisterWorkload(job_id="17")))

    assert await refused(stream.read()) is grpc.StatusCode.INVALID_ARGUMENT
    assert key in await stream.details()


async def test_what_is_kept_of_a_channel_is_small(dial: Dial) -> None:
    app = App(v1_rpc.SnapshotAgentServiceStub(await dial("17")))
    await app.register(tags=[LONG])

    assert await refused(app.stream.read()) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_job_has_only_so_many_calls_under_way_and_others_have_theirs(
    dial: Dial, agent: Agent, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(sockets, "CALLS_MAX", 8)
    stubs = [v1_rpc.SnapshotAgentServiceStub(await dial(job)) for job in ("17", "18")]
    streams = [stubs[0].WorkloadChannel() for _ in range(8)]
    register = v1.WorkloadMessage(register=v1.RegisterWorkload(job_id="17"))
    for stream in streams:
        await stream.write(register)
    await has_channel(agent)

    async def is_full() -> bool:
        try:
            await stubs[0].Status(v1.StatusRequest())
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        return False

    await eventually(is_full)
    assert (await stubs[1].Status(v1.StatusRequest())).job_statuses
    assert (await hook(folder, verb="job-end", job="17"))["ok"]
