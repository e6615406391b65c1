"""Nothing that a peer says ends the orchestrator, or hurts another peer."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import timeslice_orchestrator_v1alpha1_pb2 as ts
from slurm_interleave.orchestrator.daemon import Orchestrator
from tests.hostile import Hostile, answer, attack, tracebacks
from tests.orchestrator.fake_agent import FakeAgent, agent
from tests.orchestrator.serving import Client

GOOD = {"job_id": "17", "group": "demo", "attempt": "1", "devices": [0]}


def started(**report: Any) -> pb.AgentMessage:
    return pb.AgentMessage(started=pb.JobReport(**{**GOOD, **report}))


def done(**result: Any) -> pb.AgentMessage:
    plain: dict[str, Any] = {"operation_id": "1-1", "job_id": "17", "ok": True, "context": "saved"}
    return pb.AgentMessage(done=[pb.OperationDone(**{**plain, **result})])


BAD = {
    "no job": started(job_id=""),
    "long job": started(job_id="9" * 129),
    "bad group": started(group="bad name"),
    "no attempt": started(attempt=""),
    "long attempt": started(attempt="a" * 129),
    "NUL in the attempt": started(attempt="a\0"),
    "no device": started(devices=[]),
    "device below 0": started(devices=[-1]),
    "too many devices": started(devices=range(2000)),
    "negative bytes": started(bytes=-1),
    "bytes whose sum overflows": started(bytes=(1 << 63) - 1),
    "digest of another kind": started(token_sha256=b"x" * 64),
    "another node's job": started(nodes=["n1", "n3"]),
    "node with a comma": started(nodes=["n2", "n1,n3"]),
    "long operation": done(operation_id="1" * 129),
    "no operation": done(operation_id=""),
    "seconds that are no number": done(seconds=float("nan")),
    "seconds without end": done(seconds=float("inf")),
    "seconds below 0": done(seconds=-1.0),
    "moved bytes below 0": done(bytes=-1),
    "moved bytes beyond 63 bits in sum": done(bytes=(1 << 63) - 1),
    "end of a job without a name": pb.AgentMessage(over=pb.JobOver(attempt="1")),
    "end of a long attempt": pb.AgentMessage(over=pb.JobOver(job_id="17", attempt="a" * 129)),
    "a second hello": pb.AgentMessage(hello=pb.Hello(node="n2")),
}


@pytest.mark.parametrize("message", BAD.values(), ids=BAD)
async def test_what_cannot_be_ends_the_stream_with_the_reason_and_nothing_else(
    client: Client, n1: FakeAgent, message: pb.AgentMessage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with agent(client.address, "n2") as n2:
        await n2.start("20", "quiet")
        await n2._stream.write(message)

        assert await asyncio.wait_for(n2._stream.code(), 30) is grpc.StatusCode.INVALID_ARGUMENT
        assert await n2._stream.details()

    assert [r.__dict__["node"] for r in caplog.records if r.msg == "agent.refused"] == ["'n2'"]
    assert not tracebacks(caplog.records)
    assert (await client.granted("a")).epoch == 1
    async with agent(client.address, "n2") as again:
        await again.start("20", "quiet")
        assert (await client.granted("20", "quiet")).epoch == 2


@pytest.mark.parametrize(
    "hello",
    [
        pb.Hello(node="a" * 129),
        pb.Hello(node="n1,n2"),
        pb.Hello(node="n1", devices=[pb.Device(index=-1)]),
        pb.Hello(node="n1", devices=[pb.Device(memory_bytes=-1)]),
        pb.Hello(node="n1", devices=[pb.Device(index=i) for i in range(2000)]),
        pb.Hello(node="n1", jobs=[pb.JobReport(**GOOD), pb.JobReport(**GOOD)]),
        pb.Hello(node="n1", jobs=[pb.JobReport(**{**GOOD, "attempt": "a" * 129})]),
        pb.Hello(node="n1", host_bytes=-1),
        pb.Hello(node="n1", jobs=[pb.JobReport(**GOOD, profile="ml/math")]),
        pb.Hello(node="n1", jobs=[pb.JobReport(**GOOD, max_slowdown=-1)]),
    ],
    ids=[
        *("long node", "two nodes", "device", "memory", "many devices", "job twice", "long attempt"),
        *("host memory", "profile", "slowdown"),
    ],
)
async def test_a_hello_that_cannot_be_is_refused(client: Client, hello: pb.Hello) -> None:
    fake = FakeAgent(client.address)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await fake.connect(hello=pb.AgentMessage(hello=hello))

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not (await client.status()).nodes
    await fake.close()


async def test_a_message_of_a_later_release_is_passed_over(client: Client, n1: FakeAgent) -> None:
    await n1._stream.write(pb.AgentMessage())

    await n1.start("18")

    assert (await client.granted("18")).epoch == 1


@pytest.mark.parametrize(
    "moment", [float("nan"), float("inf"), float("-inf")], ids=["not a number", "never", "before all"]
)
async def test_a_report_of_no_time_is_refused(client: Client, moment: float) -> None:
    for wanted in ({"start": moment}, {"end": moment}):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.slices(**wanted)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "said",
    [
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": 1e308},
        {"bytes": -1},
        {"bytes": (1 << 63) - 1},
        {"error": "a" * 1_000_000, "ok": False, "context": "faulted"},
        {"error": "\0", "ok": False, "context": "faulted"},
        {"context": "\0"},
    ],
    ids=lambda said: ",".join(f"{key}={str(value)[:9]!a}" for key, value in said.items()),
)
async def test_a_switch_that_ends_with_such_a_value_ends_no_other_group(
    client: Client, n1: FakeAgent, said: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    for job in "ab":
        await client.lock(job)
        await client.unlock(job)
    n1.answers = False
    waiting = asyncio.ensure_future(client.lock("a"))
    async with agent(client.address, "n2") as n2:
        await n2.start("20", "quiet")
        await n1.next_order()  # the one before

        await n1.done(await n1.next_order(), **said)
        if said.keys() <= {"seconds", "bytes"}:
            await n1.ended()
        else:
            await n1.done(await n1.next_order(), **said)

        assert (await client.granted("20", "quiet")).epoch
    assert not tracebacks(caplog.records)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.timeout(120)
async def test_no_value_in_any_call_ends_the_orchestrator_or_hurts_another_job(
    orchestrator: Orchestrator, client: Client, tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    hostile, hello = Hostile(seed), pb.AgentMessage(hello=pb.Hello(node="n1", jobs=[pb.JobReport(**GOOD)]))
    services = [*pb.DESCRIPTOR.services_by_name.values(), *ts.DESCRIPTOR.services_by_name.values()]
    async with agent(client.address, "quiet-node") as quiet:
        await quiet.start("quiet-job", "quiet")

        codes = await attack(client.channel, services, hostile, 12, lambda _: [hello])
        replies = [
            await answer(tmp_path / "interleaved.sock", hostile.line(["job-over"], ["job", "ended"]))
            for _ in range(60)
        ]

        assert grpc.StatusCode.INVALID_ARGUMENT in codes
        assert not all(reply["ok"] for reply in replies)
        assert not tracebacks(caplog.records)
        assert (await client.granted("quiet-job", "quiet")).epoch
        await client.end("quiet-job", group="quiet")
