"""Applications that do not move their own state as they are told, and channels that end."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from slurm_interleave.client.sim import SimDevice
from slurm_interleave.client.wire import snapshot_agent_v1alpha1_pb2 as v1
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends import app_channel
from tests.node_agent.channel import DISCARD, App, app, device, finished, has_channel, stub
from tests.node_agent.fakes import FakeOrchestrator, hook

__all__ = ["app", "device", "stub"]


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
