"""The v1alpha1 agent service on a job's socket, as the wire contract has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.sim import SimBackend
from tests.node_agent.fakes import (
    FakeOrchestrator,
    config,
    device_of,
    environment,
    hook,
    running,
    start_job,
    until,
)
from tests.node_agent.snapshot_calls import JOB, channel, device, finished, load, refusal, save, state, stub

__all__ = ["channel", "device", "stub"]
MIB = 1 << 20


async def test_a_context_goes_and_comes_back_with_measured_bytes(
    stub: Any, device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    buffer = device.put(np.arange(MIB, dtype=np.uint8))
    assert await state(stub) == v1.JOB_STATE_RUNNING

    saved = await save(stub)

    assert (saved.status, saved.storage_bytes, saved.snapshot_device_bytes) == (
        v1.OPERATION_STATUS_COMPLETE,
        MIB,
        MIB,
    )
    assert await state(stub) == v1.JOB_STATE_SAVED
    assert (await load(stub)).status == v1.OPERATION_STATUS_COMPLETE
    assert await state(stub) == v1.JOB_STATE_RUNNING
    assert np.array_equal(buffer.get(), np.arange(MIB, dtype=np.uint8))


async def test_the_orchestrator_hears_of_what_was_moved_behind_its_back(
    stub: Any, device: SimDevice, orchestrator: FakeOrchestrator
) -> None:
    device.put(np.zeros(10))
    await orchestrator.hears("started")

    await save(stub)

    assert (await orchestrator.hears("started")).context == "saved"


async def test_an_idle_job_has_nothing_to_save_or_restore(stub: Any) -> None:
    assert await state(stub) == v1.JOB_STATE_IDLE
    for call in (stub.Snapshot(JOB), stub.Restore(v1.RestoreRequest(job_id="17"))):
        code, text = await refusal(call)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "it has nothing on the devices" in text


async def test_a_restore_of_a_running_job_is_already_running(stub: Any, device: SimDevice) -> None:
    device.put(np.zeros(10))

    reply = await stub.Restore(v1.RestoreRequest(job_id="17"))

    assert reply.operation_id == "already-running"
    assert (await finished(stub, "already-running")).status == v1.OPERATION_STATUS_COMPLETE


async def test_a_snapshot_of_a_saved_job_is_refused(stub: Any, device: SimDevice) -> None:
    device.put(np.zeros(10))
    await save(stub)

    code, _ = await refusal(stub.Snapshot(JOB))

    assert code is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_faulted_job_is_refused_with_the_reason(stub: Any, device: SimDevice, sim: SimConfig) -> None:
    device.put(np.zeros(10))
    await save(stub)
    (file,) = (sim.directory / "host" / "17").iterdir()
    file.write_bytes(b"x" * file.stat().st_size)

    assert (await load(stub)).status == v1.OPERATION_STATUS_FAILED

    assert await state(stub) == v1.JOB_STATE_FAULTED
    for call in (stub.Snapshot(JOB), stub.Restore(v1.RestoreRequest(job_id="17"))):
        code, text = await refusal(call)
        assert (code, "checksum" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)


async def test_a_job_id_that_comes_again_has_no_stale_fault(
    stub: Any, device: SimDevice, sim: SimConfig, folder: Path
) -> None:
    device.put(np.zeros(10))
    await save(stub)
    (file,) = (sim.directory / "host" / "17").iterdir()
    file.unlink()
    await load(stub)

    await hook(folder, verb="job-end", job="17")
    await start_job(folder)
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as channel:
        again: Any = v1_rpc.SnapshotAgentServiceStub(channel)
        assert await state(again) == v1.JOB_STATE_IDLE


async def test_a_second_operation_during_a_move_is_aborted(
    folder: Path, orchestrator: FakeOrchestrator
) -> None:
    sim = SimConfig(directory=folder / "sim", memory_mib=8, snapshot_gib_s=0.001)
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)):
        await start_job(folder)
        device_of(sim).empty(8 * MIB, np.uint8)
        async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as channel:
            stub: Any = v1_rpc.SnapshotAgentServiceStub(channel)
            operation = (await stub.Snapshot(JOB)).operation_id
            await until(sim, Context.SAVING)

            assert await state(stub) == v1.JOB_STATE_TRANSITIONING
            for call in (stub.Snapshot(JOB), stub.Restore(v1.RestoreRequest(job_id="17"))):
                assert (await refusal(call))[0] is grpc.StatusCode.ABORTED
            pending = await stub.GetOperation(v1.GetOperationRequest(operation_id=operation))
            assert pending.status == v1.OPERATION_STATUS_PENDING
            assert pending.elapsed_ms > 0


async def test_an_unknown_operation_is_not_found(stub: Any) -> None:
    code, _ = await refusal(stub.GetOperation(v1.GetOperationRequest(operation_id="x")))

    assert code is grpc.StatusCode.NOT_FOUND


async def test_a_job_sees_and_moves_itself_alone(stub: Any, folder: Path) -> None:
    await start_job(folder, "18")

    code, _ = await refusal(stub.Snapshot(v1.SnapshotRequest(job_id="18")))

    assert code is grpc.StatusCode.NOT_FOUND
    assert [job.job_id for job in (await stub.Status(v1.StatusRequest())).job_statuses] == ["17"]


async def test_status_shows_what_is_used_of_the_devices(stub: Any, device: SimDevice) -> None:
    device.empty(3 * MIB, np.uint8)

    accelerators = (await stub.Status(v1.StatusRequest())).accelerator_statuses

    assert [(a.id, a.memory_used_bytes, a.memory_total_bytes) for a in accelerators] == [
        ("SIM-n1-0", 3 * MIB, 8 * MIB),
        ("SIM-n1-1", 0, 8 * MIB),
    ]


async def test_a_backend_that_is_off_is_refused_with_the_switch(stub: Any, device: SimDevice) -> None:
    device.put(np.zeros(10))
    wanted = v1.BackendConfig(direct_memory=v1.DirectMemoryBackendConfig())

    code, text = await refusal(stub.Snapshot(v1.SnapshotRequest(job_id="17", backend_config=wanted)))

    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "backend direct_memory is off on this node: [agent] backend = 'sim'" in text


async def test_chosen_processes_are_refused_with_what_to_write_and_the_job_runs_on(
    stub: Any, device: SimDevice
) -> None:
    device.put(np.zeros(10))
    target = v1.ProcessTarget(pids=[101, 102])
    wanted = v1.BackendConfig(cuda=v1.CudaBackendConfig(explicit_target=target))

    refused = await save(stub, backend_config=wanted)
    running = await state(stub)
    saved = await save(stub, backend_config=v1.BackendConfig(cuda=v1.CudaBackendConfig()))

    assert (refused.status, running) == (v1.OPERATION_STATUS_FAILED, v1.JOB_STATE_RUNNING)
    assert refused.error == (
        "cuda.explicit_target.pids = 101, 102: processes cannot be chosen here, since all of job 17 are "
        "moved together, or none; leave explicit_target out, and they are found"
    )
    assert saved.status == v1.OPERATION_STATUS_COMPLETE


async def test_a_job_under_noop_counts_as_running(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    where = config(folder, orchestrator.address, backend="noop", listen="127.0.0.1:0")
    async with running(where, sim, NoopBackend("n1", 1)):
        await start_job(folder)
        async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as channel:
            stub: Any = v1_rpc.SnapshotAgentServiceStub(channel)

            assert (await save(stub)).status == v1.OPERATION_STATUS_COMPLETE
            assert await state(stub) == v1.JOB_STATE_SAVED


async def test_the_health_service_knows_the_backend(channel: grpc.aio.Channel) -> None:
    health: Any = health_pb2_grpc.HealthStub(channel)

    for name in ("", "sim"):
        reply = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    code, _ = await refusal(health.Check(health_pb2.HealthCheckRequest(service="cuda")))
    assert code is grpc.StatusCode.NOT_FOUND


async def test_a_snapshot_of_a_job_whose_state_went_with_its_processes_is_complete(
    stub: Any, device: SimDevice
) -> None:
    buffer = device.put(np.zeros(10))
    assert await state(stub) == v1.JOB_STATE_RUNNING
    buffer.free()

    assert (await save(stub)).status == v1.OPERATION_STATUS_COMPLETE
    assert await state(stub) == v1.JOB_STATE_IDLE


async def test_a_job_cannot_come_back_to_a_device_that_another_job_is_on(
    stub: Any, device: SimDevice, folder: Path, sim: SimConfig
) -> None:
    device.put(np.zeros(10))
    await save(stub)
    await start_job(folder, "18")
    device_of(sim, "18").put(np.zeros(10))

    code, text = await refusal(stub.Restore(v1.RestoreRequest(job_id="17")))

    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "job 18 is resident on device 0" in text
    assert await state(stub) == v1.JOB_STATE_SAVED
