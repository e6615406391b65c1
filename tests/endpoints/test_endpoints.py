"""Inference servers that the agent suspends over HTTP, behaving and misbehaving as the real ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from slurm_interleave.client.cli.interleave import main
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.endpoints import parse_endpoints, register_endpoints
from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.sim.arena import Arena
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent import endpoints
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.state import State
from tests.endpoints.servers import Engine, Sglang, Vllm
from tests.node_agent.conftest import folder, orchestrator, sim
from tests.node_agent.fakes import FakeOrchestrator, config, environment, eventually, running, start_job
from tests.node_agent.test_snapshot_service import channel, load, save, state, stub

__all__ = ["channel", "folder", "orchestrator", "sim", "stub"]
Make = Callable[..., list[Engine]]


@pytest.fixture
def make(sim: SimConfig) -> Iterator[Make]:
    engines: list[Engine] = []

    def made(*kinds: type[Engine]) -> list[Engine]:
        device = SimDevice(Arena.open(sim.directory), 0, "17")
        engines.extend(kind(device) for kind in kinds)
        return engines[-len(kinds) :]

    yield made
    for engine in engines:
        engine.close()


@pytest_asyncio.fixture
async def agent(folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator) -> AsyncIterator[Agent]:
    """With a limit of 2 s: a server has 0.8 s to drain and 1.4 s to have left."""
    where = config(folder, orchestrator.address, operation_timeout_s=2.0)
    async with running(where, sim, SimBackend("n1", sim)) as agent:
        await start_job(folder)
        yield agent


async def tell(folder: Path, engines: list[Engine], **more: Any) -> None:
    urls = [engine.url for engine in engines]
    environ = environment(folder)
    done = await asyncio.to_thread(register_endpoints, engines[0].app, urls, environ=environ, **more)
    assert done


async def asked(orchestrator: FakeOrchestrator, verb: str) -> pb.OperationDone:
    asked.count += 1  # type: ignore[attr-defined]
    return await orchestrator.asks(verb, "17", f"1-{asked.count}")  # type: ignore[attr-defined]


asked.count = 0  # type: ignore[attr-defined]


async def test_vllm_servers_sleep_and_wake_side_by_side(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, sim: SimConfig
) -> None:
    engines = make(Vllm, Vllm)
    await tell(folder, engines)
    gates = [threading.Event(), threading.Event()]
    for engine, gate in zip(engines, gates, strict=True):
        engine.slow["/sleep"] = gate

    saving = asyncio.create_task(asked(orchestrator, "SNAPSHOT"))

    async def both_sleep() -> bool:
        return all(engine.calls for engine in engines)

    await eventually(both_sleep)
    for gate in gates:
        gate.set()
    saved = await saving
    taken = Arena.open(sim.directory).used_bytes(0)
    back = await asked(orchestrator, "RESTORE")

    assert (saved.ok, saved.context, saved.bytes, taken) == (True, "saved", 8192, 0)
    assert (back.ok, back.context) == (True, "resident")
    assert [engine.calls for engine in engines] == [["/sleep?level=1&mode=wait", "/wake_up"]] * 2


async def test_weights_that_are_pushed_again_need_not_be_kept(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    engines = make(Vllm)
    await tell(folder, engines, discard=True)

    assert (await asked(orchestrator, "SNAPSHOT")).ok
    assert engines[0].calls == ["/sleep?level=2&mode=wait"]


async def test_a_server_is_drained_before_it_sleeps(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.in_flight = 2
    saving = asyncio.create_task(asked(orchestrator, "SNAPSHOT"))
    await asyncio.sleep(0.1)
    before = list(engine.calls)
    engine.in_flight = 0

    assert (await saving).ok
    assert (before, engine.crashed) == ([], False)


@pytest.mark.parametrize("status", [200, 500, 503])
async def test_a_server_that_does_not_count_its_requests_is_not_idle(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, status: int
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.in_flight = 1
    engine.fails["/metrics"] = [status] * 1000

    failed = await asked(orchestrator, "SNAPSHOT")
    engine.in_flight = 0
    engine.fails["/metrics"] = [status] * 3

    assert (failed.ok, failed.context, engine.crashed, engine.calls) == (False, "resident", False, [])
    assert f"/metrics: status {status}" in failed.error
    assert failed.error.endswith("whether requests are in flight is not known")
    assert (await asked(orchestrator, "SNAPSHOT")).ok
    assert not engine.fails["/metrics"]


@pytest.mark.parametrize("kind", [Vllm, Sglang])
async def test_a_server_that_does_not_drain_is_left_running(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, kind: type[Engine]
) -> None:
    busy, idle = make(kind, kind)
    if isinstance(busy, Sglang) and isinstance(idle, Sglang):
        busy.knows_pause = False
    await tell(folder, [busy, idle])
    busy.in_flight = 3

    failed = await asked(orchestrator, "SNAPSHOT")
    busy.in_flight = 0

    assert (failed.ok, failed.context) == (False, "resident")
    assert "requests are in flight still" in failed.error
    assert not any("/sleep" in call or "/release" in call for call in busy.calls + idle.calls)
    assert not getattr(idle, "paused", False)
    assert (await asked(orchestrator, "SNAPSHOT")).ok


@pytest.mark.parametrize(("kind", "looks_at"), [(Vllm, "/metrics"), (Sglang, "/flush_cache")])
async def test_a_look_that_has_no_answer_in_time_does_not_hide_what_the_one_before_saw(
    agent: Agent,
    folder: Path,
    make: Make,
    orchestrator: FakeOrchestrator,
    kind: type[Engine],
    looks_at: str,
) -> None:
    [busy] = make(kind)
    if isinstance(busy, Sglang):
        busy.knows_pause = False
    await tell(folder, [busy])
    busy.in_flight = 3
    busy.answers[looks_at] = 1

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert "requests are in flight still" in failed.error


async def test_a_200_is_no_proof(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    honest, liar = make(Vllm, Vllm)
    await tell(folder, [honest, liar])
    liar.frees = False

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert failed.error == "job 17 said that it is suspended, but 4096 bytes are on its devices still"
    assert not honest.asleep
    assert not liar.asleep


async def test_memory_that_comes_free_late_is_waited_for(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.frees = False
    saving = asyncio.create_task(asked(orchestrator, "SNAPSHOT"))

    async def sleeps() -> bool:
        return engine.asleep

    await eventually(sleeps)
    engine.frees = True
    engine.leave()

    assert (await saving).ok


async def test_an_error_that_passes_is_tried_again(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.fails["/sleep"] = [500, 503]

    assert (await asked(orchestrator, "SNAPSHOT")).ok
    assert len(engine.calls) == 3


async def test_an_error_that_stays_leaves_the_job_running_and_wakes_the_others(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    good, bad = make(Vllm, Vllm)
    await tell(folder, [good, bad])
    bad.fails["/sleep"] = [500] * 3

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert failed.error == f"{bad.url}/sleep: status 500: it went wrong"
    assert (good.asleep, good.calls[-1]) == (False, "/wake_up")
    assert (await asked(orchestrator, "SNAPSHOT")).ok


async def test_a_server_that_lacks_the_call_says_what_to_set(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.fails["/sleep"] = [404]

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert failed.error.endswith("is VLLM_SERVER_DEV_MODE=1 set, and --enable-sleep-mode given?")


async def test_a_sleep_that_hangs_is_not_replayed_and_what_is_there_counts(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.hangs.add("/sleep")

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert "/sleep: no answer within" in failed.error
    assert engine.calls == ["/sleep?level=1&mode=wait", "/wake_up"]


async def test_a_server_that_hangs_for_good_with_all_its_bytes_there_is_running_still(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.hangs |= {"/sleep", "/wake_up"}

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert "/wake_up: no answer within" in failed.error


async def test_servers_that_left_and_do_not_come_back_fault_the_job(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    good, bad = make(Vllm, Vllm)
    await tell(folder, [good, bad])
    bad.hangs.add("/sleep")
    good.hangs.add("/wake_up")

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "faulted")
    assert "and then, undoing it" in failed.error


@pytest.mark.parametrize(("kind", "wakes"), [(Vllm, "/wake_up"), (Sglang, "/resume_memory_occupation")])
async def test_if_one_server_cannot_wake_the_others_sleep_again(
    agent: Agent,
    folder: Path,
    make: Make,
    orchestrator: FakeOrchestrator,
    sim: SimConfig,
    kind: type[Engine],
    wakes: str,
) -> None:
    good, bad = make(kind, kind)
    await tell(folder, [good, bad])
    assert (await asked(orchestrator, "SNAPSHOT")).ok
    good.queued = 2
    if isinstance(good, Vllm):
        good.brief = True
    bad.fails[wakes] = [500] * 3

    failed = await asked(orchestrator, "RESTORE")
    taken = Arena.open(sim.directory).used_bytes(0)
    again = await asked(orchestrator, "RESTORE")

    assert (failed.ok, failed.context, taken, good.crashed) == (False, "saved", 0, False)
    assert again.ok
    assert not good.asleep
    assert not bad.asleep


async def test_a_wake_up_that_hangs_before_it_began_leaves_the_job_saved(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    assert (await asked(orchestrator, "SNAPSHOT")).ok
    engine.hangs.add("/wake_up")

    failed = await asked(orchestrator, "RESTORE")

    assert (failed.ok, failed.context) == (False, "saved")


async def test_a_server_that_is_gone_is_an_error_that_leaves_the_job_as_it_is(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    (engine,) = make(Vllm)
    await tell(folder, [engine])
    engine.close()

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert "nobody listens" in failed.error


@pytest.mark.parametrize("pauses", [True, False])
async def test_sglang_pauses_releases_resumes_and_goes_on(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator, pauses: bool
) -> None:
    (engine,) = make(Sglang)
    assert isinstance(engine, Sglang)
    engine.knows_pause = pauses
    engine.in_flight = 2 if pauses else 0
    await tell(folder, [engine])

    saved = await asked(orchestrator, "SNAPSHOT")
    back = await asked(orchestrator, "RESTORE")

    assert (saved.ok, back.ok, engine.crashed, engine.asleep) == (True, True, False, False)
    done = [call.partition(" ")[0] for call in engine.calls]
    first = ["/pause_generation"] if pauses else ["/pause_generation", "/flush_cache"]
    assert done == [
        *first,
        "/release_memory_occupation",
        "/resume_memory_occupation",
        "/continue_generation",
    ]


async def test_an_sglang_server_that_refuses_to_release_goes_on(
    agent: Agent, folder: Path, make: Make, orchestrator: FakeOrchestrator
) -> None:
    good, bad = make(Sglang, Sglang)
    await tell(folder, [good, bad])
    bad.fails["/release_memory_occupation"] = [500] * 3

    failed = await asked(orchestrator, "SNAPSHOT")

    assert (failed.ok, failed.context) == (False, "resident")
    assert (good.asleep, bad.calls[-1]) == (False, "/continue_generation")
    assert not any("resume" in call for call in bad.calls)


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


async def test_where_nobody_sees_the_devices_the_servers_word_counts(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, make: Make
) -> None:
    Arena.open(sim.directory, sim)
    (engine,) = make(Vllm)
    async with running(config(folder, orchestrator.address, backend="noop"), sim, NoopBackend("n1", 1)):
        await start_job(folder)
        await tell(folder, [engine])

        assert (await asked(orchestrator, "SNAPSHOT")).ok
        assert engine.asleep
        assert (await asked(orchestrator, "RESTORE")).ok
        assert not engine.asleep


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
