"""Slurm's counts of the shared GRES against the book."""

from __future__ import annotations

import logging

import pytest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.placement.audit import Difference
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from tests.placement.world import CONFIG, World

TOO_MANY = {("n1", "ilva:g0"): 2}
FOUND = Difference("n1", "ilva:g0", booked=1, used=2)


async def look(world: World, times: int = 1) -> list[Difference]:
    for _ in range(times):
        world.now += CONFIG.compare_s
        await world.helper.round()
    return world.helper.audit.differences


@pytest.fixture
async def world() -> World:
    """A world in which job 1 runs."""
    made = World()
    made.slurm.submit("1")
    await made.helper.round()
    return made


async def test_what_agrees_is_no_difference(world: World) -> None:
    assert await look(world, 3) == []


async def test_a_difference_that_lasts_is_an_alarm_with_both_sides_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.slurm.miscounts = TOO_MANY
    assert await look(world) == []
    assert await look(world, 3) == [FOUND]

    alarms = [vars(record) for record in caplog.records if record.message == "placement.books_differ"]
    assert [(a["node"], a["gres"], a["booked"], a["used"]) for a in alarms] == [("n1", "ilva:g0", 1, 2)]


async def test_a_difference_that_is_gone_is_none_and_the_log_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.slurm.miscounts = TOO_MANY
    await look(world, 2)
    world.slurm.miscounts = {}

    assert await look(world) == []
    assert "placement.books_agree" in caplog.text


async def test_gres_of_others_and_jobs_that_are_just_ending_are_no_difference(world: World) -> None:
    world.slurm.miscounts = {("n1", "gpu:h200"): 3, ("n1", "ilva:g0"): 0}
    world.slurm.change("1", states=frozenset({"COMPLETED", "COMPLETING"}))

    assert await look(world, 3) == []


async def test_a_running_job_that_slurm_does_not_count_is_one(world: World) -> None:
    world.slurm.miscounts = {("n1", "ilva:g0"): 0}

    assert await look(world, 2) == [Difference("n1", "ilva:g0", booked=1, used=0)]


async def test_between_two_looks_slurm_is_not_asked(world: World) -> None:
    world.slurm.miscounts = TOO_MANY
    await look(world)
    for _ in range(5):
        await world.helper.round()

    assert world.helper.audit.differences == []


def test_a_negative_interval_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"compare_s -1.0 must be 0 or more"):
        PlacementConfig(compare_s=-1.0)
