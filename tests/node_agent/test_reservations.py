"""What starts of jobs are told of their devices."""

from __future__ import annotations

import asyncio
from pathlib import Path

from slurm_interleave.client.sim.settings import SimConfig
from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.agent import Agent
from slurm_interleave.node_agent.backends.sim import SimBackend
from slurm_interleave.node_agent.reservations import Reservations
from slurm_interleave.node_agent.state import State
from tests.node_agent.fakes import (
    OURS,
    FakeOrchestrator,
    config,
    environment,
    eventually,
    hook,
    running,
    start_job,
)


def test_devices_that_a_start_took_stay_taken_when_a_welcome_names_them_again(tmp_path: Path) -> None:
    """Else the next run of the job, whose question the link loses, would take those of the run before."""
    state = State(tmp_path)
    reservations, told = Reservations(state, lambda *_: True), pb.Reservation(job_id="17", group="before")
    reservations.take([told])
    reservations.taken("17", "attempt-1")

    reservations.take([told], all_of_them=True)
    again = state.reservations["17"].attempt
    reservations.take([pb.Reservation(job_id="17", group="other")], all_of_them=True)

    assert (again, state.reservations["17"].attempt) == ("attempt-1", "")


async def test_a_question_that_was_lost_with_the_link_is_asked_again(tmp_path: Path) -> None:
    """What the welcome says may have been sent before the job was placed anew."""
    asked: list[int] = []
    reservations = Reservations(State(tmp_path), lambda _, question: bool(asked.append(question)) or True)
    starting = asyncio.create_task(reservations.of("17"))
    await asyncio.sleep(0)
    reservations.take([pb.Reservation(job_id="17", devices=[1])], all_of_them=True)
    reservations.ask_again()
    reservations.take([pb.Reservation(job_id="17", devices=[0], question=asked[-1])])

    found = await starting

    assert asked == [1, 1]
    assert found is not None
    assert found.devices == (0,)


async def test_devices_that_slurm_did_not_name_come_from_the_reservation(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    reservation = pb.Reservation(job_id="17", group="other", devices=[1], nodes=["n1", "n2"])
    orchestrator.reservations = [reservation]
    await agent._link.connected.wait()

    await start_job(folder, devices=None, group="")
    started = await orchestrator.hears("started")

    assert (list(started.devices), started.group, list(started.nodes)) == ([1], "other", ["n1", "n2"])


async def test_the_group_of_the_reservation_counts_whatever_the_prolog_was_told(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.reservations = [pb.Reservation(job_id="17", group="mine", role="trainer", devices=[1])]
    await agent._link.connected.wait()

    await start_job(folder, devices=None, group="theirs", role="")
    started = await orchestrator.hears("started")

    assert (started.group, started.role) == ("mine", "trainer")


async def test_a_reservation_outlives_the_orchestrator_and_the_agent(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.reservations = [pb.Reservation(job_id="17", group="demo", devices=[1])]
    where = config(folder, orchestrator.address)
    async with running(where, sim, SimBackend("n1", sim)) as first:
        await first._link.connected.wait()  # so the reservation has arrived
    await orchestrator.stop()

    async with running(where, sim, SimBackend("n1", sim)):
        reply = await start_job(folder, devices=None)

    assert reply["ok"] is True
    assert environment(folder)["CUDA_VISIBLE_DEVICES"] == "SIM-n1-1"


async def test_a_reservation_that_a_start_has_taken_is_not_taken_by_the_next_without_the_orchestrator(
    folder: Path, sim: SimConfig, orchestrator: FakeOrchestrator
) -> None:
    orchestrator.reservations = [pb.Reservation(job_id=OURS, group="demo", devices=[1])]
    where = config(folder, orchestrator.address)
    async with running(where, sim, SimBackend("n1", sim)) as first:
        await first._link.connected.wait()
        await start_job(folder, OURS, devices=None)
    await orchestrator.stop()

    async with running(where, sim, SimBackend("n1", sim)) as second:
        twice = await start_job(folder, OURS, devices=None)
        await hook(folder, verb="job-end", job=OURS)
        stale = await start_job(folder, OURS, devices=None)
        requeued = await start_job(folder, OURS, devices=None, restarts=1)
        orchestrator.reservations = [pb.Reservation(job_id=OURS, group="demo", devices=[0])]
        await orchestrator.start()
        await second._link.connected.wait()
        fresh = await start_job(folder, OURS, devices=None, restarts=1)

    assert twice["ok"] is True, "it is the same start"
    assert stale["ok"] is requeued["ok"] is False
    assert "requeue the job when it does" in stale["error"]
    assert fresh["ok"] is True
    assert environment(folder, OURS)["CUDA_VISIBLE_DEVICES"] == "SIM-n1-0"


async def test_a_start_asks_for_the_devices_that_the_job_has_got_since(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    await agent._link.connected.wait()
    orchestrator.orders(reserve=pb.Reservation(job_id="17", group="demo", devices=[1]))

    async def heard() -> bool:
        return "17" in agent._state.reservations

    await eventually(heard)
    orchestrator.reservations = [pb.Reservation(job_id="17", group="demo", devices=[0])]

    await start_job(folder, devices=None)

    assert (await orchestrator.hears("starting")).job_id == "17"
    assert list((await orchestrator.hears("started")).devices) == [0]


async def test_a_reservation_that_was_on_its_way_is_no_answer_to_the_question_of_a_start(
    agent: Agent, folder: Path, orchestrator: FakeOrchestrator
) -> None:
    """It may be that of the run before."""
    await agent._link.connected.wait()
    orchestrator.on_its_way = [pb.Reservation(job_id="17", group="demo", devices=[1])]
    orchestrator.reservations = [pb.Reservation(job_id="17", group="demo", devices=[0])]

    await start_job(folder, devices=None)

    assert list((await orchestrator.hears("started")).devices) == [0]
