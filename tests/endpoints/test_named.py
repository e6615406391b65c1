"""How a job names its inference servers, and which ones an agent takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.endpoints import parse_endpoints, register_endpoints
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent import endpoints
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.state import State
from tests.endpoints.asking import Make, agent, asked, make, tell
from tests.endpoints.servers import Vllm
from tests.node_agent.conftest import folder, orchestrator, sim
from tests.node_agent.fakes import FakeOrchestrator, config, environment, running, start_job
from tests.node_agent.snapshot_calls import channel, load, save, state, stub

__all__ = ["agent", "channel", "folder", "make", "orchestrator", "sim", "stub"]


async def test_endpoints_outlive_the_agent(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, make: Make
) -> None:
    where = config(folder, orchestrator.address)
    async with running(where, sim, SimBackend("n1", sim)):
        await start_job(folder)
        (engine,) = make(Vllm)
        await tell(folder, [engine])
        assert (await asked(orchestrator, "SNAPSHOT")).ok

    assert State(where.state_dir).jobs["17"].endpoints == endpoints.Endpoints("vllm", (engine.url,))
    async with running(where, sim, SimBackend("n1", sim)):
        told = await orchestrator.hears("hello")
        assert (await asked(orchestrator, "RESTORE")).ok
    assert [report.context for report in told.jobs] == ["saved"]
    assert not engine.asleep


async def test_a_v1alpha1_request_names_its_endpoints(agent: Agent, stub: Any, make: Make) -> None:
    (engine,) = make(Vllm)
    wanted = v1.AppEndpointConfig(
        app=v1.APP_VLLM, endpoints=[engine.url], mode=v1.SUSPEND_MODE_DISCARD, tags=["weights"]
    )

    saved = await save(stub, backend_config=v1.BackendConfig(app_endpoint=wanted))
    back = await load(stub, backend_config=v1.BackendConfig(app_endpoint=wanted))

    assert (saved.status, saved.storage_bytes) == (v1.OPERATION_STATUS_COMPLETE, 4096)
    assert back.status == v1.OPERATION_STATUS_COMPLETE
    assert engine.calls == ["/sleep?level=2&mode=wait", "/wake_up?tags=weights"]


@pytest.mark.parametrize("urls", [[], ["http://192.0.2.1:8000"]])
async def test_a_v1alpha1_request_with_endpoints_that_cannot_be_used_fails(
    agent: Agent, stub: Any, make: Make, urls: list[str]
) -> None:
    make(Vllm)
    wanted = v1.AppEndpointConfig(app=v1.APP_VLLM, endpoints=urls)

    failed = await save(stub, backend_config=v1.BackendConfig(app_endpoint=wanted))

    assert failed.status == v1.OPERATION_STATUS_FAILED
    assert "is not on this node" in failed.error or "has registered no servers" in failed.error
    assert await state(stub) == v1.JOB_STATE_RUNNING


@pytest.mark.parametrize(
    "url",
    [
        "https://localhost:8000",
        "http://localhost",
        "http://localhost:80",
        "http://localhost:99999",
        "http://192.0.2.1:8000",
        "http://example.org:8000",
        "http://user@localhost:8000",
        "http://localhost:8000/?x=1",
        "http://localhost:8000/a b",
        "file:///etc/passwd",
        "",
    ],
)
def test_the_agent_is_not_sent_elsewhere(url: str) -> None:
    with pytest.raises(BadArgument, match="endpoint "):
        endpoints.parse("vllm", [url])


def test_what_is_on_this_node_is_taken() -> None:
    urls = [
        "http://localhost:8000/",
        "http://127.0.0.2:8000",
        "http://[::1]:8000/base",
        "http://localhost:8000",
    ]

    assert endpoints.parse("sglang", urls).urls == (
        "http://localhost:8000",
        "http://127.0.0.2:8000",
        "http://[::1]:8000/base",
    )
    with pytest.raises(BadArgument, match="known are vllm, sglang"):
        endpoints.parse("tgi", urls)


async def test_the_agents_refusal_reaches_the_job(agent: Agent, folder: Path) -> None:
    environ = environment(folder)

    with pytest.raises(BadArgument, match="is not on this node"):
        await asyncio.to_thread(register_endpoints, "vllm", ["http://192.0.2.1:8000"], environ=environ)
    assert not register_endpoints("vllm", ["http://localhost:8000"], environ={})


def test_the_environment_names_endpoints() -> None:
    assert parse_endpoints("vllm http://a:1, http://b:2") == ("vllm", ["http://a:1", "http://b:2"])
    for text in ("vllm", ""):
        with pytest.raises(BadArgument, match="as in: vllm http://localhost:8000"):
            parse_endpoints(text)


def in_job(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)


async def test_a_script_names_them_on_the_command_line(
    agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["endpoints", "vllm", "http://localhost:8000", "http://localhost:8001", "--discard"]
    outside = main(argv)
    in_job(monkeypatch, folder)
    inside = await asyncio.to_thread(main, argv)

    assert (outside, inside) == (1, 0)
    assert "this is no process of an interleaved job" in capsys.readouterr().err
    expected = endpoints.Endpoints("vllm", ("http://localhost:8000", "http://localhost:8001"), discard=True)
    assert agent._state.jobs["17"].endpoints == expected
