from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.protocol import Target
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.contexts import Outcome
from tests.node_agent.fakes import (
    FakeOrchestrator,
    config,
    device_of,
    eventually,
    hook,
    running,
    start_job,
    until,
)

MIB = 1 << 20


async def test_a_context_goes_and_comes_back_by_order(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    values = np.arange(MIB, dtype=np.uint8)
    buffer = device_of(sim).put(values)

    saved = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    back = await orchestrator.asks("RESTORE", "17", "1-2")

    assert (saved.ok, saved.context, saved.bytes) == (True, "saved", MIB)
    assert (back.ok, back.context, back.bytes) == (True, "resident", MIB)
    assert saved.seconds > 0
    assert np.array_equal(buffer.get(), values)


async def test_an_operation_that_is_known_is_answered_again_but_not_done_again(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    device_of(sim).put(np.zeros(100))
    first = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    await orchestrator.asks("RESTORE", "17", "1-2")

    again = await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert again == first
    assert device_of(sim).used_bytes > 0


async def test_what_is_so_already_is_ok(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)

    nothing = await orchestrator.asks("SNAPSHOT", "17", "1-1")
    device_of(sim).put(np.zeros(100))
    resident = await orchestrator.asks("RESTORE", "17", "1-2")
    await orchestrator.asks("SNAPSHOT", "17", "1-3")
    saved = await orchestrator.asks("SNAPSHOT", "17", "1-4")
    stranger = await orchestrator.asks("SNAPSHOT", "99", "1-5")
    other_attempt = await orchestrator.asks("SNAPSHOT", "17", "1-6", attempt="of-yesterday")

    assert [(d.ok, d.context) for d in (nothing, resident, saved, stranger, other_attempt)] == [
        (True, "none"),
        (True, "resident"),
        (True, "saved"),
        (True, "none"),
        (True, "none"),
    ]


async def test_a_restore_of_a_job_that_is_not_here_fails_with_its_name(
    agent: Agent, orchestrator: FakeOrchestrator
) -> None:
    done = await orchestrator.asks("RESTORE", "99", "1-1")

    assert (done.ok, done.context, done.error) == (False, "none", "job 99 is not on this node")


async def test_a_restore_without_room_leaves_the_context_saved_and_gives_the_numbers(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    device_of(sim).empty(6 * MIB, np.uint8)
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    device_of(sim, "stranger").empty(6 * MIB, np.uint8)

    done = await orchestrator.asks("RESTORE", "17", "1-2")

    assert (done.ok, done.context) == (False, "saved")
    assert f"{6 * MIB} bytes asked for, {2 * MIB} of {8 * MIB} free" in done.error
    assert f"job stranger holds {6 * MIB} bytes" in done.error


async def test_a_context_that_came_back_broken_is_faulted(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    device_of(sim).put(np.zeros(100))
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    (saved,) = (sim.directory / "host" / "17").iterdir()
    saved.write_bytes(b"x" * saved.stat().st_size)

    done = await orchestrator.asks("RESTORE", "17", "1-2")
    again = await orchestrator.asks("RESTORE", "17", "1-3")

    assert (done.ok, done.context) == (again.ok, again.context) == (False, "faulted")
    assert "checksum" in done.error


async def test_a_snapshot_beyond_its_deadline_leaves_the_context_resident(
    folder: Path, orchestrator: FakeOrchestrator
) -> None:
    sim = SimConfig(directory=folder / "sim", memory_mib=8, snapshot_gib_s=0.001)
    where = config(folder, orchestrator.address, operation_timeout_s=0.1)
    async with running(where, sim, SimBackend("n1", sim)):
        await start_job(folder)
        device_of(sim).empty(8 * MIB, np.uint8)

        done = await orchestrator.asks("SNAPSHOT", "17", "1-1")

    assert (done.ok, done.context) == (False, "resident")


async def test_a_slow_job_does_not_delay_another(folder: Path, orchestrator: FakeOrchestrator) -> None:
    sim = SimConfig(directory=folder / "sim", memory_mib=8, snapshot_gib_s=0.01)
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)):
        await start_job(folder)
        await start_job(folder, "18")
        device_of(sim).empty(7 * MIB, np.uint8)
        device_of(sim, "18").empty(4096, np.uint8)

        orchestrator.operate("SNAPSHOT", "17", "slow")
        orchestrator.operate("SNAPSHOT", "18", "quick")

        assert (await orchestrator.hears("done")).operation_id == "quick"
        assert (await orchestrator.hears("done")).operation_id == "slow"


async def test_an_end_stops_a_move_under_way(folder: Path, orchestrator: FakeOrchestrator) -> None:
    sim = SimConfig(directory=folder / "sim", memory_mib=8, snapshot_gib_s=0.0001)
    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)):
        await start_job(folder)
        device_of(sim).empty(8 * MIB, np.uint8)
        orchestrator.operate("SNAPSHOT", "17", "1-1")
        await until(sim, Context.SAVING)

        await hook(folder, verb="job-end", job="17")

        assert device_of(sim).used_bytes == 0
        assert (await orchestrator.hears("done")).ok is False


async def test_nothing_is_brought_back_to_a_device_that_another_job_is_on(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    await start_job(folder, "18")
    await start_job(folder, "19", devices=[1])
    device_of(sim).put(np.zeros(10))
    await orchestrator.asks("SNAPSHOT", "17", "1-1")
    device_of(sim, "18").put(np.zeros(10))

    refused = await orchestrator.asks("RESTORE", "17", "1-2")
    await orchestrator.asks("SNAPSHOT", "18", "1-3")
    back = await orchestrator.asks("RESTORE", "17", "1-4")

    assert (refused.ok, refused.context) == (False, "saved")
    assert "job 18 is resident on device 0" in refused.error
    assert (back.ok, back.context) == (True, "resident")


async def test_the_results_of_orders_in_one_message_come_one_after_the_other(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    await start_job(folder, "18", devices=[0])
    device_of(sim).put(np.zeros(100))
    first = pb.Operate(operation_id="1-1", verb="SNAPSHOT", job_id="17")
    second = pb.Operate(operation_id="1-2", verb="RESTORE", job_id="18", after=["1-1"])

    orchestrator.orders(operate=[first, second])

    results = [await orchestrator.hears("done") for _ in range(2)]
    assert [done.operation_id for done in results] == ["1-1", "1-2"]


class SlowDiscard(NoopBackend):
    """Forgets a state when the test lets it."""

    def __init__(self) -> None:
        super().__init__("n1", 1)
        self.may_end = asyncio.Event()

    async def discard(self, target: Target) -> Outcome:
        await self.may_end.wait()
        return await super().discard(target)


async def test_a_job_is_told_of_until_its_state_is_gone(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    backend = SlowDiscard()
    async with running(config(folder, orchestrator.address), sim, backend):
        await orchestrator.hears("hello")  # a job that starts before it is told of in it
        await start_job(folder)
        await orchestrator.hears("started")
        end = asyncio.create_task(hook(folder, verb="job-end", job="17"))
        await eventually_ended(folder)

        await orchestrator.stop()
        await orchestrator.start()
        hello = await orchestrator.hears("hello")
        backend.may_end.set()
        over = await orchestrator.hears("over")
        await end

    assert [job.job_id for job in hello.jobs] == ["17"]
    assert over.job_id == "17"


async def eventually_ended(folder: Path) -> None:
    """Wait until the agent has taken note of the end."""

    async def noted() -> bool:
        stored = json.loads((folder / "state" / "agent.json").read_text())
        return all(job["ended"] for job in stored["jobs"])

    await eventually(noted)
