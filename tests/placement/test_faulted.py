"""Jobs that have lost their device state, and that the site lets Slurm start again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from tests.placement.world import CONFIG, World


async def running(requeue_faulted: int) -> World:
    """A world in which job 1 runs."""
    world = World(config=replace(CONFIG, requeue_faulted=requeue_faulted))
    world.slurm.submit("1")
    await world.helper.round()
    assert world.slurm.queue["1"].has_processes
    world.steps.done.clear()
    return world


async def test_a_faulted_job_is_started_again_as_often_as_the_site_says() -> None:
    world = await running(2)
    world.members.faults["1"] = "checksum of buffer 3"
    for _ in range(4):
        await world.helper.round()
        world.slurm.change("1", states=frozenset({"RUNNING"}))

    assert world.steps.done.count("requeue 1") == 2


async def test_by_default_it_is_left_alone() -> None:
    world = await running(0)
    world.members.faults["1"] = "checksum of buffer 3"
    await world.helper.round()

    assert "requeue 1" not in world.steps.done


async def test_a_job_that_is_well_is_left_alone() -> None:
    world = await running(2)
    await world.helper.round()

    assert "requeue 1" not in world.steps.done


@pytest.mark.parametrize("states", [{"RUNNING", "COMPLETING"}, {"COMPLETING"}, {"PENDING"}, {"CONFIGURING"}])
async def test_a_faulted_job_that_does_not_run_is_left_alone(states: set[str]) -> None:
    world = await running(2)
    world.members.faults["1"] = "checksum of buffer 3"
    world.slurm.change("1", states=frozenset(states))
    await world.helper.round()

    assert "requeue 1" not in world.steps.done


async def test_one_that_slurm_does_not_requeue_is_reported_once_and_holds_up_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await running(1)
    world.members.faults["1"] = "checksum of buffer 3"
    world.slurm.fails.add("1")
    world.slurm.submit("2")
    await world.helper.round()
    await world.helper.round()

    assert "release 2" in world.steps.done
    assert [record.message for record in caplog.records].count("placement.failed") == 1


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="requeue_faulted -1 must be 0 or more"):
        PlacementConfig(requeue_faulted=-1)
