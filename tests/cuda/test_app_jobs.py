"""Jobs that move their own state off a device, and keep a context there: what is asked of NVML, and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2_grpc as v1_rpc
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.freed import Freed
from slurm_interleave.node_agent.config import AgentConfig
from tests.cuda.conftest import CONFIG, Node, running
from tests.node_agent.channel import App, has_channel
from tests.node_agent.fakes import FakeOrchestrator, environment, eventually, start_job
from tests.stub_driver.stub import CHECKPOINTED, MIB, Process, Stub

BLIND = replace(CONFIG, look_s=1e6, app_keeps_mib=4)  # what it knows it has asked for


async def begun(node: Node) -> Freed:
    return await Freed.begin(node.backend, node.target("17", 0))


async def test_what_a_job_has_is_asked_of_nvml_and_not_remembered(stub: Stub, tmp_path: Path) -> None:
    node = await asyncio.to_thread(Node, tmp_path, BLIND)
    rank = stub.start("17", "0:2", "0:20")

    freed = await begun(node)
    rank.ask("free")
    error = await freed.verified(0.0)

    assert error == ""
    assert freed.outcome().moved == 20 * MIB
    await node.backend.close()


async def test_a_job_that_says_it_is_suspended_and_has_taken_more_meanwhile_is_not_believed(
    stub: Stub, tmp_path: Path
) -> None:
    node = await asyncio.to_thread(Node, tmp_path, replace(BLIND, release_timeout_s=0.1))
    rank = stub.start("17", "0:2")

    freed = await begun(node)
    rank.ask("alloc 0:20")
    error = await freed.verified(0.0)

    assert error == f"job 17 said that it is suspended, but {22 * MIB} bytes are on its devices still"
    await node.backend.close()


async def test_memory_that_comes_free_late_is_waited_for(stub: Stub, tmp_path: Path) -> None:
    node = await asyncio.to_thread(Node, tmp_path, replace(BLIND, release_timeout_s=15))
    rank = stub.start("17", "0:2", "0:20")
    freed = await begun(node)

    looking = asyncio.create_task(freed.verified(0.0))
    await asyncio.sleep(0)
    assert not looking.done()
    rank.ask("free")

    assert await looking == ""
    await node.backend.close()


async def test_a_job_of_which_nvml_says_nothing_is_not_believed(stub: Stub, tmp_path: Path) -> None:
    node = await asyncio.to_thread(Node, tmp_path, replace(BLIND, release_timeout_s=0.1))
    rank = stub.start("17", "0:2")
    stub.nvml_says(rank.pid, "none")

    error = await (await begun(node)).verified(0.0)

    assert f"cannot be seen: NVML does not say what process {rank.pid} has" in error
    await node.backend.close()


@contextlib.asynccontextmanager
async def channel_of(agent: Agent, folder: Path) -> AsyncIterator[App]:
    """The workload channel of job 17."""
    async with grpc.aio.insecure_channel(environment(folder)["TIMESLICE_AGENT_ADDR"]) as channel:
        app = App(v1_rpc.SnapshotAgentServiceStub(channel))
        await app.register()
        await has_channel(agent)
        yield app


async def ordered(
    app: App, orchestrator: FakeOrchestrator, verb: str, rank: Process, does: str
) -> pb.OperationDone:
    """Give an order, and do *does* when the application hears of it."""
    order = asyncio.create_task(orchestrator.asks(verb, "17", f"op-{verb}"))
    command = await app.hears()
    rank.ask(does)
    await app.answers(command)
    return await order


async def test_a_job_is_saved_that_keeps_its_context_on_the_device_and_is_no_trespasser(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(replace(where, watch_s=0.05), BLIND) as agent:
        await start_job(folder, "17", devices=[0])
        rank = await asyncio.to_thread(stub.start, "17", "0:2", "0:20")
        async with channel_of(agent, folder) as app:
            saved = await ordered(app, orchestrator, "SNAPSHOT", rank, "free")
            stranger = await asyncio.to_thread(stub.start, "none", "0:1")
            await agent._backend.look_now("17")
            uses = await seen(orchestrator, stranger)
            stub.works(rank.pid)
            await agent._backend.look_now("17")
            computing = await seen(orchestrator, rank)
            (stub.folder / f"works.{rank.pid}").unlink()
            await agent._backend.look_now("17")
            back = await ordered(app, orchestrator, "RESTORE", rank, "alloc 0:20")

        assert (saved.ok, saved.context, saved.bytes) == (True, "saved", 20 * MIB)
        assert [use.pid for use in uses] == [stranger.pid]
        assert {(use.pid, use.working) for use in computing} == {(stranger.pid, False), (rank.pid, True)}
        assert (back.ok, back.context, back.bytes) == (True, "resident", 22 * MIB)


async def test_what_the_application_leaves_the_driver_saves(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(where, BLIND) as agent:
        await start_job(folder, "17", devices=[0], backend="app_channel+cuda")
        rank = await asyncio.to_thread(stub.start, "17", "0:8", "0:20")
        before = rank.ask("hash")
        async with channel_of(agent, folder) as app:
            saved = await ordered(app, orchestrator, "SNAPSHOT", rank, "free")
            kept = agent._state.jobs["17"].context
            away = stub.state(rank.pid), stub.on_device(rank.pid)
            order = asyncio.create_task(orchestrator.asks("RESTORE", "17", "op-2"))
            command = await app.hears()  # the driver was first: the rank can answer
            assert rank.ask("alloc 0:20") == "ok"
            await app.answers(command)
            back = await order

        assert (saved.ok, saved.bytes, kept.saved_by, kept.kept) == (True, 28 * MIB, "app_channel+cuda", 0)
        assert away == (CHECKPOINTED, 0)
        assert (back.ok, back.context) == (True, "resident")
        assert rank.ask("hash") != before  # the 20 MiB are the application's to bring back


async def test_a_process_that_computes_is_told_apart_from_one_that_has_memory(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(replace(where, watch_s=0.05)):
        await start_job(folder, "17", devices=[0])
        idle, busy = [await asyncio.to_thread(stub.start, "17", "0:1") for _ in range(2)]
        stub.works(busy.pid)

        uses: dict[int, bool] = {}

        async def both() -> bool:
            look = await orchestrator.hears("uses")
            uses.clear()
            uses.update({use.pid: use.working for use in look.uses if use.job_id == "17"})
            return uses == {idle.pid: False, busy.pid: True}

        await eventually(both)


async def seen(orchestrator: FakeOrchestrator, process: Process) -> list[pb.Use]:
    """Return the first look in which *process* is."""
    while True:
        look = await orchestrator.hears("uses")
        if any(use.pid == process.pid for use in look.uses):
            return list(look.uses)


async def test_a_suspended_job_may_keep_no_more_than_is_set(stub: Stub, tmp_path: Path) -> None:
    node = await asyncio.to_thread(Node, tmp_path, replace(BLIND, release_timeout_s=0.1))
    rank = stub.start("17", "0:4", "0:1")
    freed = await begun(node)

    too_much = await freed.verified(0.0)
    rank.ask("free")

    assert "5242880 bytes are on its devices still" in too_much
    assert await freed.verified(0.0) == ""
    assert freed.outcome().context is Context.SAVED
    await node.backend.close()
