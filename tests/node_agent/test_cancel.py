"""Operations that are cancelled by order, and where the device state is then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from slurm_interleave.client.core.states import Context
from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.combined import Combined
from slurm_interleave.node_agent.backends.noop import NoopBackend
from slurm_interleave.node_agent.backends.protocol import Target
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.contexts import Outcome, Verb
from tests.node_agent.channel import App, app, device, stub
from tests.node_agent.fakes import FakeOrchestrator, config, device_of, eventually, running, start_job, until
from tests.node_agent.test_operations import operations

__all__ = ["app", "device", "stub"]
VALUES = np.random.default_rng(5).integers(0, 256, 4 << 20, dtype=np.uint8)
STAYS = {"SNAPSHOT": "resident", "RESTORE": "saved"}
MOVING = {"SNAPSHOT": Context.SAVING, "RESTORE": Context.RESTORING}
verbs = pytest.mark.parametrize("verb", list(STAYS))


def cancel(orchestrator: FakeOrchestrator, operation: str = "") -> None:
    orchestrator.orders(cancel=pb.Cancel(job_id="17", operation_id=operation))


@verbs
@pytest.mark.parametrize("operation", ["1-1", ""], ids=["by its id", "whatever is under way"])
async def test_a_move_of_sim_that_is_cancelled_is_undone_and_may_be_tried_again(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator, verb: str, operation: str
) -> None:
    speed = {"SNAPSHOT": "snapshot_gib_s", "RESTORE": "restore_gib_s"}[verb]
    slow = SimConfig(directory=sim.directory, devices=2, memory_mib=8, **{speed: 0.0001})
    async with running(config(folder, orchestrator.address), slow, SimBackend("n1", slow)):
        await start_job(folder)
        buffer = device_of(sim).put(VALUES)
        if verb == "RESTORE":
            await orchestrator.asks("SNAPSHOT", "17", "1-0")
        orchestrator.operate(verb, "17", "1-1")
        await until(sim, MOVING[verb])

        cancel(orchestrator, operation)
        done = await orchestrator.hears("done")

    async with running(config(folder, orchestrator.address), sim, SimBackend("n1", sim)):
        await orchestrator.hears("hello")
        again = await orchestrator.asks(verb, "17", "1-2")
        await orchestrator.asks("RESTORE", "17", "1-3")
        assert np.array_equal(buffer.get(), VALUES)

    assert (done.ok, done.context) == (False, STAYS[verb])
    assert "stopped" in done.error
    assert again.ok


@verbs
async def test_an_application_whose_move_is_cancelled_is_told_the_opposite_at_once(
    app: App, orchestrator: FakeOrchestrator, verb: str
) -> None:
    if verb == "RESTORE":
        orchestrator.operate("SNAPSHOT", "17", "1-0")
        await app.answers(await app.hears())
        await orchestrator.hears("done")
    orchestrator.operate(verb, "17", "1-1")
    begun = await app.hears()

    cancel(orchestrator, "1-1")
    opposite = await app.hears()
    await app.answers(begun)
    await app.answers(opposite)
    done = await orchestrator.hears("done")

    assert {begun.WhichOneof("command"), opposite.WhichOneof("command")} == {"snapshot", "restore"}
    assert (done.ok, done.context, done.error) == (False, STAYS[verb], "cancelled")


async def test_an_order_that_waits_its_turn_is_not_begun_once_it_is_cancelled(
    app: App, agent: Agent, orchestrator: FakeOrchestrator
) -> None:
    async def heard() -> bool:
        return "1-2" in agent._operations._stops.early

    first = pb.Operate(operation_id="1-1", verb="SNAPSHOT", job_id="17")
    second = pb.Operate(operation_id="1-2", verb="RESTORE", job_id="17", after=["1-1"])
    orchestrator.orders(operate=[first, second])
    begun = await app.hears()

    cancel(orchestrator, "1-2")
    await eventually(heard)
    await app.answers(begun)
    saved, back = await orchestrator.hears("done"), await orchestrator.hears("done")

    assert (saved.operation_id, saved.ok) == ("1-1", True)
    assert (back.ok, back.context, back.error) == (False, "saved", "cancelled before it began")


async def test_a_cancel_for_what_has_ended_or_is_not_known_changes_nothing(
    agent: Agent, folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    device_of(sim).put(VALUES)
    await orchestrator.asks("SNAPSHOT", "17", "1-1")

    for operation in ("1-1", "9-9", ""):
        cancel(orchestrator, operation)

    assert (await orchestrator.asks("RESTORE", "17", "1-2")).ok


async def test_cancels_of_operations_that_never_come_are_not_kept_for_good(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await start_job(folder)
    for number in range(300):
        agent._operations.cancel("17", f"9-{number}")

    kept = list(agent._operations._stops.early)

    assert 0 < len(kept) <= 100
    late = await orchestrator.asks("SNAPSHOT", "17", kept[-1])
    assert (late.ok, late.error) == (False, "cancelled before it began")
    assert (await orchestrator.asks("SNAPSHOT", "17", "9-0")).ok
    assert not {kept[-1], "9-0"} & {*agent._operations._stops.early}


class Part(NoopBackend):
    """A part of a combined mover that notes what it does; `snapshot` and `restore` wait for *may_end*."""

    def __init__(self, log: list[tuple[str, str]], called: str) -> None:
        super().__init__("n1", 1)
        self.name = called  # type: ignore[misc]  # of this part
        self._log = log
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    async def _done(self, verb: str, target: Target, outcome: Outcome) -> Outcome:
        assert not (self.began.is_set() and target.stop.is_set()), "what undoes is not to be stopped"
        self._log.append((self.name, verb))
        self.began.set()
        await self.may_end.wait()
        return outcome

    @override
    async def snapshot(self, target: Target) -> Outcome:
        return await self._done("snapshot", target, Outcome(Context.SAVED))

    @override
    async def restore(self, target: Target) -> Outcome:
        return await self._done("restore", target, Outcome(Context.RESIDENT))


@verbs
async def test_parts_that_are_moved_when_a_cancel_comes_are_brought_back_and_the_others_not_begun(
    tmp_path: Path, verb: str
) -> None:
    log: list[tuple[str, str]] = []
    first, second = Part(log, "first"), Part(log, "second")
    order = (first, second) if verb == "SNAPSHOT" else (second, first)
    moves, state = operations(tmp_path, NoopBackend("n1", 1), timeout_s=30)
    moves._mover_of = lambda *_: Combined([first, second])
    if verb == "RESTORE":
        state.jobs["17"].context = state.jobs["17"].context.__class__(Context.SAVED, saved_by="first+second")
    moving = asyncio.create_task(moves.order("1-1", Verb[verb], "17", "a", beside=True))
    await asyncio.wait_for(order[0].began.wait(), 30)

    moves.cancel("17", "1-1")
    order[0].may_end.set()
    result: Any = await asyncio.wait_for(moving, 30)

    back = {"SNAPSHOT": "restore", "RESTORE": "snapshot"}[verb]
    assert log == [(order[0].name, verb.lower()), (order[0].name, back)]
    assert result.outcome == Outcome(Context(STAYS[verb]), error="cancelled")


async def test_a_backend_that_does_not_heed_a_cancel_ends_as_it_would(tmp_path: Path) -> None:
    log: list[tuple[str, str]] = []
    part = Part(log, "noop")
    moves, _ = operations(tmp_path, part, timeout_s=30)
    moving = asyncio.create_task(moves.order("1-1", Verb.SNAPSHOT, "17", "a"))
    await part.began.wait()

    moves.cancel("17", "1-1")
    part.may_end.set()

    assert (await moving).outcome == Outcome(Context.SAVED)
