from __future__ import annotations

import asyncio
import logging

import pytest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from slurm_interleave.orchestrator.placement.plan import Lane, Node, Placement
from tests.placement.fakes import Crash, Pin
from tests.placement.world import CONFIG, N2, World


@pytest.fixture
def world() -> World:
    return World()


async def test_a_held_job_is_recorded_reserved_pinned_and_released_in_this_order(world: World) -> None:
    world.slurm.submit("1", devices=2)

    await world.helper.round()

    assert world.steps.done == ["record 1", "reserve 1", "pin 1", "release 1", "note 1"]
    assert world.slurm.pins["1"] == Pin(("n1",), "ilva:g0:1,ilva:g1:1")
    assert world.slurm.queue["1"].admin_comment.endswith(";lane=ilva;indices=0,1;state=released")
    assert world.fleet.reserved["1"] == world.book.kept["1"]


async def test_two_jobs_of_one_group_are_pinned_to_one_device(world: World) -> None:
    world.slurm.submit("1")
    world.slurm.submit("2")

    await world.helper.round()

    assert world.slurm.pins == {"1": Pin(("n1",), "ilva:g0:1"), "2": Pin(("n1",), "ilvb:g0:1")}


async def test_earlier_jobs_come_first_by_number_not_by_text() -> None:
    world = World(Node("n1", (0,)))
    world.slurm.submit("10", "b")
    world.slurm.submit("9", "a")

    await world.helper.round()

    assert list(world.book.kept) == ["9"]


async def test_the_place_of_a_job_that_is_over_goes_to_one_that_waits() -> None:
    world = World(Node("n1", (0,)))
    world.slurm.submit("1", "a")
    world.slurm.submit("2", "b")
    await world.helper.round()
    assert "2" not in world.book.kept

    world.slurm.finish("1")
    await world.helper.round()

    assert list(world.book.kept) == ["2"]
    assert list(world.fleet.reserved) == ["2"]
    assert world.over == ["1"]


async def test_a_job_that_slurm_has_forgotten_loses_its_place(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()

    del world.slurm.queue["1"]
    await world.helper.round()

    assert world.book.kept == {}


async def test_a_job_that_is_still_completing_keeps_its_place(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()

    world.slurm.change("1", states=frozenset({"COMPLETED", "COMPLETING"}))
    await world.helper.round()

    assert list(world.book.kept) == ["1"]


@pytest.mark.parametrize("dies_after", range(10))
async def test_a_crash_between_any_two_steps_is_repaired_by_the_next_round(
    world: World, dies_after: int
) -> None:
    world.slurm.submit("1")
    world.slurm.submit("2")
    world.steps.dies_after = dies_after
    with pytest.raises(Crash):
        await world.helper.round()

    world.restart()
    await world.helper.round()

    assert world.slurm.pins == {"1": Pin(("n1",), "ilva:g0:1"), "2": Pin(("n1",), "ilvb:g0:1")}
    assert all(job.started for job in world.slurm.queue.values())
    assert world.fleet.reserved.keys() == world.book.kept.keys() == {"1", "2"}


async def test_a_crash_while_a_place_is_given_back_is_repaired_by_the_next_round(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.finish("1")
    world.steps.dies_after = len(world.steps.done)
    with pytest.raises(Crash):
        await world.helper.round()

    world.restart()
    await world.helper.round()

    assert world.book.kept == {}


async def test_a_round_with_nothing_new_does_nothing(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    done = list(world.steps.done)

    await world.helper.round()
    world.restart()
    await world.helper.round()

    assert world.steps.done == done


async def test_one_job_that_slurm_refuses_does_not_stop_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.slurm.submit("1")
    world.slurm.submit("2")
    world.slurm.fails = {"1"}

    await world.helper.round()
    await world.helper.round()

    assert world.slurm.queue["2"].started
    assert [record.message for record in caplog.records].count("placement.failed") == 1

    world.slurm.fails = set()
    await world.helper.round()
    assert world.slurm.queue["1"].started


async def test_a_requeued_job_that_still_has_its_place_starts_there_again(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    done = list(world.steps.done)
    world.slurm.put_back("1")

    await world.helper.round()

    assert world.steps.done == done


async def test_a_requeued_job_whose_place_was_given_back_is_held_and_placed_again(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.put_back("1")
    await world.book.drop("1")

    await world.helper.round()
    assert world.slurm.queue["1"].held
    await world.helper.round()

    assert world.slurm.queue["1"].started
    assert list(world.book.kept) == ["1"]


async def test_a_running_job_that_the_book_lost_is_taken_over_where_it_is(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    lost = world.book.kept.pop("1")
    world.slurm.submit("2", "other")

    await world.helper.round()

    assert world.book.kept["1"] == lost
    assert world.book.kept["2"].devices != lost.devices or world.book.kept["2"].nodes != lost.nodes


async def test_a_job_that_waits_for_another_takes_no_place_yet(world: World) -> None:
    world.slurm.submit("2")
    world.slurm.change("2", dependency="afterok:1(unfulfilled)")

    await world.helper.round()
    assert world.book.kept == {}

    world.slurm.change("2", dependency="")
    await world.helper.round()
    assert list(world.book.kept) == ["2"]


async def test_jobs_of_others_are_left_alone(world: World) -> None:
    world.slurm.submit("1")
    world.slurm.change("1", admin_comment="on request of the director")
    world.slurm.submit("2")
    world.slurm.change("2", admin_comment="interleave:v1;group=;nodes=1;devices=1;role=;state=held")

    await world.helper.round()

    assert world.steps.done == []


async def test_with_slurm_away_nobody_loses_his_place_and_the_loop_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.down = True
    world.slurm.asked.clear()
    world.slurm.released.clear()
    loop = asyncio.create_task(world.helper.run())
    await world.slurm.asked.wait()
    assert "slurm.unreachable" in caplog.text
    assert list(world.book.kept) == ["1"]

    world.slurm.down = False
    world.slurm.submit("2")
    world.helper.nudge()
    await world.slurm.released.wait()
    assert world.slurm.queue["2"].started

    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop


async def test_a_node_whose_agent_connects_gets_the_waiting_jobs(world: World) -> None:
    world.fleet.connected = []
    world.slurm.submit("1")
    await world.helper.round()
    assert world.book.kept == {}

    world.fleet.connected = [N2]
    await world.helper.round()

    assert world.book.kept["1"] == Placement("1", "demo", "", ("n2",), (0,), "ilva")


def test_the_lanes_are_the_seats_on_each_device() -> None:
    assert CONFIG.lanes == (Lane("ilva", 1), Lane("ilvb", 1))
    assert PlacementConfig(mode="token", gres=("ilv",), members=3).lanes == (Lane("ilv", 3),)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "lanes"},
        {"mode": "lane", "gres": ("ilva",)},
        {"mode": "lane", "gres": ("ilva", "ilva")},
        {"mode": "token", "gres": ("ilva", "ilvb")},
        {"members": 0, "gres": ()},
        {"poll_s": 0.0},
        {"away_s": 0.0},
    ],
)
def test_settings_that_do_not_go_together_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"\[placement\]"):
        PlacementConfig(**wrong)  # type: ignore[arg-type]


async def test_what_slurm_says_of_interleaved_jobs_that_are_not_over_is_passed_on(world: World) -> None:
    for job in ("1", "2", "3"):
        world.slurm.submit(job)
    world.slurm.finish("2")
    world.slurm.change("3", admin_comment="a site's own")
    world.slurm.change("1", priority=7, account="physics")

    await world.helper.round()

    assert {job: (said.priority, said.account) for job, said in world.members.known.items()} == {
        "1": (7, "physics")
    }
