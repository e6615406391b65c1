"""A device that has fallen off the bus costs its own jobs their turn, and no others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from slurm_interleave.client.core.states import Context
from slurm_interleave.node_agent.config import AgentConfig
from tests.cuda.conftest import Node, running
from tests.node_agent.fakes import FakeOrchestrator, environment, eventually, start_job
from tests.stub_driver.stub import CHECKPOINTED, RUNNING, Stub


async def test_jobs_of_the_other_devices_go_on(
    node: Node, stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    ranks = [stub.start("17", "0:2"), stub.start("18", "1:2")]
    before = [rank.ask("hash") for rank in ranks]
    await node.backend.recover(["17", "18"])
    await node.saved("18", 1)

    async def is_told() -> bool:
        return "cuda.device_lost" in caplog.messages

    stub.set(lost=1)
    await eventually(is_told)
    refused = await node.bring("18", 1)
    saved, back = await node.save("17", 0), await node.bring("17", 0)

    assert (refused.context, refused.error) == (
        Context.SAVED,
        f"device_lost: NVML does not find {stub.uuids[1]} any more",
    )
    assert stub.state(ranks[1].pid) == CHECKPOINTED
    assert (saved.context, saved.error, back.context) == (Context.SAVED, "", Context.RESIDENT)
    assert (stub.state(ranks[0].pid), ranks[0].ask("hash")) == (RUNNING, before[0])
    stub.set(lost=-1)
    assert (await node.bring("18", 1)).ok
    assert ranks[1].ask("hash") == before[1]


@pytest.mark.parametrize("listed", ["real", "none"])
async def test_one_that_comes_back_while_a_job_is_saved_disturbs_nothing(
    node: Node, stub: Stub, listed: str
) -> None:
    rank = stub.start("17", "0:2")
    stub.set(lost=1, nvml_bytes=listed)
    stub.fault("checkpoint", 0, delay_ms=500)

    saving = asyncio.create_task(node.save("17", 0))
    await asyncio.to_thread(stub.wait_until_asked, "checkpoint", rank.pid)
    stub.set(lost=-1)

    assert (await saving).error == ""
    assert (await node.bring("17", 0)).ok


async def test_the_next_agent_serves_without_it(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(where):
        await start_job(folder, "17", devices=[0, 1])
        await start_job(folder, "18", devices=[2])

    stub.set(lost=1)
    async with running(where) as agent:
        assert set(agent._state.jobs) == {"17", "18"}
        assert environment(folder, "17")["CUDA_VISIBLE_DEVICES"] == stub.uuids[0]
        refused = await start_job(folder, "19", devices=[1])
        assert "there is no device 1" in refused["error"]
