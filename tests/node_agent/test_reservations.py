"""What starts of jobs are told of their devices."""

from __future__ import annotations

import asyncio
from pathlib import Path

from slurm_interleave.client.wire import interleave_v1_pb2 as pb
from slurm_interleave.node_agent.reservations import Reservations
from slurm_interleave.node_agent.state import State


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
