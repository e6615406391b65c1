"""Applications that move their own state, told so over the workload channel."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends import app_channel
from tests.node_agent.fakes import FakeOrchestrator, environment, eventually, hook, start_job

OFFLOAD, DISCARD = v1.SUSPEND_MODE_OFFLOAD, v1.SUSPEND_MODE_DISCARD


class App:
    """An application with a workload channel."""

    def __init__(self, stub: Any) -> None:
        self.stream = stub.WorkloadChannel()

    async def register(self, job: str = "17", **capabilities: Any) -> None:
        known = v1.WorkloadCapabilities(**capabilities)
        register = v1.RegisterWorkload(job_id=job, capabilities=known)
        await self.stream.write(v1.WorkloadMessage(register=register))

    async def hears(self) -> v1.AgentCommand:
        command: v1.AgentCommand = await asyncio.wait_for(self.stream.read(), 30)
        return command

    async def answers(self, command: v1.AgentCommand, error: str = "") -> None:
        result = v1.CommandResult(command_id=command.command_id, ok=not error, error=error)
        await self.stream.write(v1.WorkloadMessage(result=result))


@pytest_asyncio.fixture
async def stub(agent: Agent, folder: Path) -> AsyncIterator[Any]:
    await start_job(folder)
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as channel:
        yield v1_rpc.SnapshotAgentServiceStub(channel)


@pytest_asyncio.fixture
async def app(stub: Any, agent: Agent) -> App:
    app = App(stub)
    await app.register(supported_modes=[OFFLOAD], tags=["weights"])
    await has_channel(agent)
    return app


async def has_channel(agent: Agent, other_than: object = None) -> object:
    async def is_there() -> bool:
        return agent._channels.of("17") not in ([], other_than)

    await eventually(is_there)
    return agent._channels.of("17")


async def finished(stub: Any, operation: Any) -> v1.GetOperationResponse:
    request = v1.GetOperationRequest(operation_id=operation.operation_id)

    async def is_done() -> bool:
        return bool((await stub.GetOperation(request)).status != v1.OPERATION_STATUS_PENDING)

    await eventually(is_done)
    reply: v1.GetOperationResponse = await stub.GetOperation(request)
    return reply


@pytest.fixture
def device(stub: Any, sim: SimConfig) -> SimDevice:
    return SimDevice(Arena.open(sim.directory), 0, "17")


async def test_an_order_reaches_the_application_and_its_answer_the_orchestrator(
    app: App, device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    buffer = device.put(np.zeros(10))
    orchestrator.operate("SNAPSHOT", "17", "1-1")
    command = await app.hears()
    buffer.free()
    await app.answers(command)
    saved = await orchestrator.hears("done")
    orchestrator.operate("RESTORE", "17", "1-2")
    restore = await app.hears()
    await app.answers(restore)
    back = await orchestrator.hears("done")

    assert command.snapshot.mode == OFFLOAD
    assert restore.HasField("restore")
    assert (saved.ok, saved.context, saved.bytes) == (True, "saved", 4096)
    assert (back.ok, back.context) == (True, "resident")


async def test_each_command_has_a_fresh_id_and_is_sent_once(app: App, orchestrator: FakeOrchestrator) -> None:
    heard = []
    for number, verb in enumerate(["SNAPSHOT", "RESTORE"] * 3):
        orchestrator.operate(verb, "17", f"1-{number}")
        heard.append(await app.hears())
        await app.answers(heard[-1])
        assert (await orchestrator.hears("done")).ok

    assert [command.WhichOneof("command") for command in heard] == ["snapshot", "restore"] * 3
    assert len({command.command_id for command in heard}) == len(heard)


@pytest.mark.parametrize(
    ("asked", "registered", "sent"),
    [(OFFLOAD, DISCARD, OFFLOAD), (DISCARD, OFFLOAD, DISCARD), (0, DISCARD, DISCARD), (0, 0, OFFLOAD)],
)
async def test_a_mode_is_the_calls_or_what_the_application_registered_or_offload(
    agent: Agent, stub: Any, asked: Any, registered: Any, sent: Any
) -> None:
    app = App(stub)
    await app.register(default_mode=registered)
    await has_channel(agent)
    wanted = v1.BackendConfig(app_channel=v1.AppChannelConfig(mode=asked))

    operation = await stub.Snapshot(v1.SnapshotRequest(job_id="17", backend_config=wanted))
    command = await app.hears()
    await app.answers(command)

    assert command.snapshot.mode == sent
    assert (await finished(stub, operation)).status == v1.OPERATION_STATUS_COMPLETE


async def test_the_tags_of_a_call_reach_the_application(app: App, stub: Any) -> None:
    some = v1.BackendConfig(app_channel=v1.AppChannelConfig(tags=["weights", "kv_cache"]))
    for call, request in ((stub.Snapshot, v1.SnapshotRequest), (stub.Restore, v1.RestoreRequest)):
        operation = await call(request(job_id="17", backend_config=some))
        command = await app.hears()
        await app.answers(command)

        assert (command.snapshot.tags or command.restore.tags) == ["weights", "kv_cache"]
        assert (await finished(stub, operation)).status == v1.OPERATION_STATUS_COMPLETE


async def test_an_application_with_state_that_no_backend_sees_counts_as_running(app: App, stub: Any) -> None:
    async def states() -> list[int]:
        return [job.state for job in (await stub.Status(v1.StatusRequest())).job_statuses]

    assert await states() == [v1.JOB_STATE_RUNNING]
    operation = await stub.Snapshot(v1.SnapshotRequest(job_id="17"))
    await app.answers(await app.hears())
    await finished(stub, operation)
    assert await states() == [v1.JOB_STATE_SAVED]


async def test_a_request_that_says_cuda_by_number_alone_passes_the_channel_by(
    app: App, stub: Any, device: SimDevice
) -> None:
    buffer = device.put(np.arange(10))
    for call, request in ((stub.Snapshot, v1.SnapshotRequest), (stub.Restore, v1.RestoreRequest)):
        begun = await call(request(job_id="17", backend=v1.BACKEND_CUDA))
        done = await finished(stub, begun)
        assert (done.status, done.error) == (v1.OPERATION_STATUS_COMPLETE, "")

    assert np.array_equal(buffer.get(), np.arange(10))


async def test_a_backend_of_the_config_counts_more_than_its_number(
    app: App, stub: Any, device: SimDevice
) -> None:
    buffer = device.put(np.zeros(10))
    config = v1.BackendConfig(app_channel=v1.AppChannelConfig())
    request = v1.SnapshotRequest(job_id="17", backend=v1.BACKEND_CUDA, backend_config=config)
    begun = await stub.Snapshot(request)
    command = await app.hears()
    buffer.free()
    await app.answers(command)

    assert (await finished(stub, begun)).status == v1.OPERATION_STATUS_COMPLETE


async def test_a_backend_of_an_unknown_number_is_refused(app: App, stub: Any, device: SimDevice) -> None:
    device.put(np.zeros(10))
    request = v1.SnapshotRequest(job_id="17", backend=7)  # type: ignore[arg-type]
    with pytest.raises(grpc.aio.AioRpcError, match="backend = 7 is not known") as caught:
        await stub.Snapshot(request)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_application_that_says_ok_but_stays_is_not_believed(
    app: App, device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    device.put(np.zeros(10))
    orchestrator.operate("SNAPSHOT", "17", "1-1")
    await app.answers(await app.hears())
    undo = await app.hears()
    await app.answers(undo)
    done = await orchestrator.hears("done")

    assert undo.HasField("restore")
    assert (done.ok, done.context) == (False, "resident")
    assert "4096 bytes are on its devices still" in done.error


async def test_an_applications_own_words_reach_the_operation(
    app: App, device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    device.put(np.zeros(10))
    orchestrator.operate("SNAPSHOT", "17", "1-1")
    await app.answers(await app.hears(), error="in the middle of a request")

    assert (await orchestrator.hears("done")).error == "in the middle of a request"


async def test_a_mode_that_the_application_cannot_do_is_not_even_sent(
    app: App, device: SimDevice, stub: Any
) -> None:
    device.put(np.zeros(10))
    wanted = v1.BackendConfig(app_channel=v1.AppChannelConfig(mode=DISCARD))
    operation = await stub.Snapshot(v1.SnapshotRequest(job_id="17", backend_config=wanted))
    reply = await finished(stub, operation)

    assert reply.status == v1.OPERATION_STATUS_FAILED
    assert "cannot do SUSPEND_MODE_DISCARD; it can do SUSPEND_MODE_OFFLOAD" in reply.error


async def test_a_lost_channel_fails_the_command_in_flight(
    app: App, device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    device.put(np.zeros(10))
    orchestrator.operate("SNAPSHOT", "17", "1-1")
    await app.hears()
    app.stream.cancel()
    done = await orchestrator.hears("done")

    assert (done.ok, done.context) == (False, "resident")
    assert "channel was lost" in done.error


async def test_an_application_that_never_answers_does_not_hold_up_its_end(
    app: App, folder: Path, orchestrator: FakeOrchestrator, agent: Agent
) -> None:
    agent._operations._grace_s = 0.1
    orchestrator.operate("SNAPSHOT", "17", "1-1")
    await app.hears()

    reply = await asyncio.wait_for(hook(folder, verb="job-end", job="17"), 30)

    assert reply["ok"]
    assert (await orchestrator.hears("done")).ok is False


@pytest.mark.parametrize(("verb", "stays"), [("SNAPSHOT", "resident"), ("RESTORE", "saved")])
async def test_an_application_that_is_late_is_asked_and_stays_where_it_says(
    app: App,
    agent: Agent,
    orchestrator: FakeOrchestrator,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    stays: str,
) -> None:
    if verb == "RESTORE":
        orchestrator.operate("SNAPSHOT", "17", "1-0")
        await app.answers(await app.hears())
        await orchestrator.hears("done")
    monkeypatch.setattr(app_channel, "_MOVED", 0.001)
    orchestrator.operate(verb, "17", "1-1")
    late, question = await app.hears(), await app.hears()
    await app.answers(late)
    await app.answers(question)
    done = await orchestrator.hears("done")
    monkeypatch.undo()
    orchestrator.operate(verb, "17", "1-2")
    await app.answers(await app.hears())

    assert late.WhichOneof("command") == verb.lower() != question.WhichOneof("command")
    assert (done.ok, done.context) == (False, stays)
    assert done.error.startswith("the application gave no answer within 0.1")
    assert (await orchestrator.hears("done")).ok


async def test_where_the_state_of_an_application_is_that_says_nothing_is_not_known(
    app: App, agent: Agent, device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    device.put(np.zeros(10))
    agent._operations._timeout_s = 0.1
    orchestrator.operate("SNAPSHOT", "17", "1-1")
    done = await orchestrator.hears("done")

    assert (done.ok, done.context) == (False, "faulted")
    silent = r"the application gave no answer within [\d.e-]+ s"
    assert re.fullmatch(f"{silent}; and then, undoing it: {silent}", done.error)


async def test_an_old_streams_end_does_not_evict_the_new_one(
    app: App, agent: Agent, stub: Any, device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    old, newer = agent._channels.of("17"), App(stub)
    await newer.register()
    await has_channel(agent, other_than=old)
    await app.stream.done_writing()
    assert await app.stream.read() is grpc.aio.EOF
    buffer = device.put(np.zeros(10))

    orchestrator.operate("SNAPSHOT", "17", "1-1")
    command = await newer.hears()
    buffer.free()
    await newer.answers(command)

    assert (await orchestrator.hears("done")).ok


@pytest.mark.parametrize("first", [v1.WorkloadMessage(), v1.WorkloadMessage(register=v1.RegisterWorkload())])
async def test_a_channel_begins_with_a_register(stub: Any, first: v1.WorkloadMessage) -> None:
    stream = stub.WorkloadChannel()
    await stream.write(first)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_second_register_on_one_stream_is_refused(app: App) -> None:
    await app.register()

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await app.hears()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
