"""Applications that move their own state, told so over the workload channel."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent.agent import Agent
from tests.node_agent.channel import DISCARD, OFFLOAD, App, app, device, finished, has_channel, stub
from tests.node_agent.fakes import FakeOrchestrator

__all__ = ["app", "device", "stub"]


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
