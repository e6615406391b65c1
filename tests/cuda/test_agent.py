"""The whole agent with this backend: orders come in, real processes are moved."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.core.groups import DeclaredGroup
from slurm_interleave.client.core.hook_server import Peer
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.cuda import backend, requirements
from slurm_interleave.node_agent.backends.cuda.settings import CudaConfig
from slurm_interleave.node_agent.config import AgentConfig
from tests.cuda.conftest import running
from tests.node_agent.fakes import FakeOrchestrator, environment, eventually, hook, start_job
from tests.stub_driver.stub import CHECKPOINTED, MIB, RUNNING, Stub
from tests.stub_driver.stub import Process as Rank


async def test_two_jobs_take_turns_on_a_device(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(where):
        hello: pb.Hello = await orchestrator.hears("hello")
        assert [device.uuid for device in hello.devices] == stub.uuids
        await start_job(folder, "17", devices=[0, 1])
        await start_job(folder, "18", devices=[0, 1])
        one = await asyncio.to_thread(stub.start, "17", "0:40", "1:40")
        first = one.ask("hash")

        saved = await orchestrator.asks("SNAPSHOT", "17", "op1")
        other = await asyncio.to_thread(stub.start, "18", "0:40")
        full = await orchestrator.asks("RESTORE", "17", "op2")
        saved_too = await orchestrator.asks("SNAPSHOT", "18", "op3")
        back = await orchestrator.asks("RESTORE", "17", "op4")

        assert (saved.ok, saved.context, saved.bytes) == (True, "saved", 80 * MIB)
        assert (full.ok, full.context) == (False, "saved")
        assert (saved_too.ok, saved_too.bytes) == (True, 40 * MIB)
        assert (back.ok, back.context, back.bytes) == (True, "resident", 80 * MIB)
        assert one.ask("hash") == first
        assert (stub.state(one.pid), stub.state(other.pid)) == (RUNNING, CHECKPOINTED)


async def test_a_job_finds_its_devices_by_uuid(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(where):
        await start_job(folder, "17", devices=[stub.uuids[3], stub.uuids[2]])

        variables = environment(folder)

        assert variables["CUDA_VISIBLE_DEVICES"] == ",".join(stub.uuids[2:])
        assert variables["INTERLEAVE_BACKEND"] == "cuda"


async def test_a_job_that_uses_a_device_is_reported_as_resident_and_forgotten_at_its_end(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(where) as agent:
        await start_job(folder, "17", devices=[0])
        rank = await asyncio.to_thread(stub.start, "17", "0:2")

        async def seen() -> bool:
            state = agent._backend.look("17")
            return state is not None and (state.state.value, state.bytes) == ("resident", 2 * MIB)

        await eventually(seen)
        rank.kill()
        await hook(folder, verb="job-end", job="17")

        assert agent._backend.look("17") is None


async def test_what_keeps_a_job_from_being_saved_is_told_when_it_comes_to_be(
    stub: Stub,
    folder: Path,
    where: AgentConfig,
    orchestrator: FakeOrchestrator,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def told(job: str) -> str:
        report = await orchestrator.hears("started")
        while report.job_id != job:
            report = await orchestrator.hears("started")
        return str(report.caution)

    def mps(runs: bool) -> None:
        monkeypatch.setattr(backend, "mps_runs", lambda: runs)

    async with running(replace(where, watch_s=0.05)):
        await orchestrator.hears("hello")
        await start_job(folder, "17", devices=[0])
        at_first = await told("17")
        mps(True)
        while not (later := await told("17")):
            pass
        await start_job(folder, "18", devices=[1])
        of_another = await told("18")
        mps(False)
        while await told("17"):
            pass
        rank = await asyncio.to_thread(stub.start, "17", "0:2", NCCL_CUMEM_ENABLE="1")
        while not (variables := await told("17")):
            pass

    assert at_first == ""
    assert later == of_another == requirements.MPS.text
    logged = [record for record in caplog.records if "caution" in record.msg and vars(record)["job"] == "17"]
    assert [record.msg for record in logged] == ["job.caution", "job.caution_over", "job.caution"]
    assert variables == f"process {rank.pid} has NCCL_CUMEM_ENABLE=1: saving it may fail unless 0"


async def test_helpers_are_asked_about_all_devices_at_once_while_16_jobs_are_idle_and_about_no_job(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator
) -> None:
    asked: list[str] = []
    async with running(where) as agent:
        for number in range(16):
            await start_job(folder, f"idle-{number}", devices=[number % 4])
        helpers = agent._backend._helpers
        ask = helpers.ask

        async def counted(call: str, *more: Any, **named: Any) -> Any:
            asked.append(call)
            return await ask(call, *more, **named)

        async def has_looked_often() -> bool:
            return len(asked) >= 20

        helpers.ask = counted
        await eventually(has_looked_often)

    assert set(asked) == {"devices"}
    assert 60 / CudaConfig().look_s <= 12  # a minute


async def test_a_saved_job_is_saved_for_the_next_agent(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator
) -> None:
    async with running(where):
        await start_job(folder, "17", devices=[0])
        rank = await asyncio.to_thread(stub.start, "17", "0:2")
        before = rank.ask("hash")
        assert (await orchestrator.asks("SNAPSHOT", "17", "op1")).ok

    async with running(where):
        hello: pb.Hello = await orchestrator.hears("hello")
        (report,) = hello.jobs
        back = await orchestrator.asks("RESTORE", "17", "op2")

        assert (report.context, report.bytes) == ("saved", 2 * MIB)
        assert (back.ok, back.bytes) == (True, 2 * MIB)
        assert rank.ask("hash") == before


def agent_program(folder: Path, orchestrator: str) -> list[str]:
    text = (
        f'[agent]\nnode = "n1"\nbackend = "cuda"\nauth = "none"\norchestrator = "{orchestrator}"\n'
        f'run_dir = "{folder}/run"\nstate_dir = "{folder}/state"\n[cuda]\nheadroom_mib = 1\n'
    )
    (folder / "interleave.toml").write_text(text)
    module = "slurm_interleave.node_agent.daemon"
    return [sys.executable, "-m", module, "--config", str(folder / "interleave.toml")]


def test_the_agent_itself_loads_no_driver_and_leaves_no_helper(stub: Stub, folder: Path) -> None:
    with subprocess.Popen(agent_program(folder, "127.0.0.1:1"), stderr=subprocess.PIPE, text=True) as agent:
        assert agent.stderr is not None
        for line in agent.stderr:
            if "event=ready" in line:
                break
        maps = Path(f"/proc/{agent.pid}/maps").read_text()
        agent.send_signal(signal.SIGTERM)
        rest = agent.stderr.read()

    assert agent.returncode == 0, rest
    assert "libcuda" not in maps
    assert "libnvidia" not in maps
    assert "Traceback" not in rest


def test_an_agent_on_a_node_that_cannot_serve_ends_with_the_reasons(stub: Stub, folder: Path) -> None:
    stub.set(mig=1, driver="575.51.03", persistence=0)

    ended = subprocess.run(agent_program(folder, "127.0.0.1:1"), check=False, capture_output=True, text=True)

    assert ended.returncode == 1
    assert (
        "interleave-agent: [agent] backend = 'cuda' cannot work on this node: mig: MIG is on" in ended.stderr
    )
    assert "no_persistence_mode: " in ended.stderr
    assert "Traceback" not in ended.stderr


async def trespassing(agent: Agent, stub: Stub, folder: Path, orchestrator: FakeOrchestrator) -> Rank:
    """Return a process that was restored and has memory on a device, as the agent has seen."""
    await start_job(folder, "17", devices=[0])
    rank = await asyncio.to_thread(stub.start, "17", "0:2")
    rank.ask("hash")
    assert (await orchestrator.asks("SNAPSHOT", "17", "op1")).ok
    assert (await orchestrator.asks("RESTORE", "17", "op2")).ok

    async def seen() -> bool:
        return any(user.pid == rank.pid for user in agent._backend.users())

    await eventually(seen)
    return rank


def kill(agent: Agent, orchestrator: FakeOrchestrator, rank: Rank) -> None:
    attempt = agent._state.jobs["17"].attempt
    orchestrator.orders(stop=pb.Stop(job_id="17", attempt=attempt, pid=rank.pid))


@pytest.mark.parametrize(("driver", "state"), [("595.71.05", CHECKPOINTED), ("580.95.05", RUNNING)])
async def test_a_trespasser_is_saved_before_it_is_killed_where_the_host_would_hang_else(
    stub: Stub, folder: Path, where: AgentConfig, orchestrator: FakeOrchestrator, driver: str, state: int
) -> None:
    stub.set(driver=driver)
    async with running(where) as agent:
        rank = await trespassing(agent, stub, folder, orchestrator)

        kill(agent, orchestrator, rank)

        assert await asyncio.to_thread(rank.popen.wait, 20) == -signal.SIGKILL
        assert stub.state(rank.pid) == state


async def test_a_trespasser_that_cannot_be_saved_is_spared_where_the_host_would_hang_else(
    stub: Stub,
    folder: Path,
    where: AgentConfig,
    orchestrator: FakeOrchestrator,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def spared() -> bool:
        return "trespass.spared" in caplog.messages

    stub.set(driver="595.71.05")
    async with running(where) as agent:
        rank = await trespassing(agent, stub, folder, orchestrator)
        before = rank.ask("hash")
        stub.fault("lock", 600, pid=rank.pid)

        kill(agent, orchestrator, rank)
        await eventually(spared)

        assert rank.ask("hash") == before
        kill(agent, orchestrator, rank)
        assert await asyncio.to_thread(rank.popen.wait, 20) == -signal.SIGKILL
        assert stub.state(rank.pid) == CHECKPOINTED


@pytest.mark.parametrize(("driver", "state"), [("595.71.05", CHECKPOINTED), ("580.95.05", RUNNING)])
async def test_what_a_registered_process_left_running_is_saved_before_it_is_killed_there_too(
    stub: Stub, where: AgentConfig, orchestrator: FakeOrchestrator, driver: str, state: int
) -> None:
    stub.set(driver=driver)
    async with running(where, groups={"rl": DeclaredGroup(("n1",), (0,))}) as agent:
        await orchestrator.hears("hello")
        lead = await asyncio.create_subprocess_exec("sleep", "60")
        answer = await agent._registrations.register({"group": "rl"}, Peer(lead.pid, 0, 0))
        rank = await asyncio.to_thread(stub.start, answer["job"], "0:2")
        assert (await orchestrator.asks("SNAPSHOT", answer["job"], "op1")).ok
        assert (await orchestrator.asks("RESTORE", answer["job"], "op2")).ok

        lead.kill()
        await lead.wait()

        assert await asyncio.to_thread(rank.popen.wait, 20) == -signal.SIGKILL
        assert stub.state(rank.pid) == state
