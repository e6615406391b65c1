"""Heterogeneous jobs: each component has a place of its own, or none has one."""

from __future__ import annotations

import pytest

from tests.placement.fakes import Crash
from tests.placement.world import N1, N2, World

PARTS = (("1", "train"), ("2", "sample"))


async def test_its_components_get_places_on_nodes_of_their_own() -> None:
    world = World()
    world.slurm.submit_parts(*PARTS)

    await world.helper.round()

    assert {job: place.nodes for job, place in world.book.kept.items()} == {"1": ("n1",), "2": ("n2",)}
    assert all(job.started for job in world.slurm.queue.values())


async def test_a_second_one_shares_the_devices_of_both() -> None:
    world = World()
    world.slurm.submit_parts(*PARTS)
    world.slurm.submit_parts(("3", "train"), ("4", "sample"))

    await world.helper.round()

    seats = {job: (place.nodes, place.devices) for job, place in world.book.kept.items()}
    assert seats["1"] == seats["3"]
    assert seats["2"] == seats["4"]


async def test_of_two_such_jobs_one_is_released_as_a_whole_before_the_other() -> None:
    world = World()
    world.slurm.submit_parts(*PARTS)
    world.slurm.submit_parts(("3", "train"), ("4", "sample"))

    await world.helper.round()

    released = [step for step in world.steps.done if step.startswith("release")]
    assert released == ["release 1", "release 2", "release 3", "release 4"]


async def test_while_one_component_finds_no_place_none_has_one_and_those_behind_go_on() -> None:
    world = World(N1)
    world.slurm.submit_parts(*PARTS)
    world.slurm.submit("3", "other", devices=2)

    await world.helper.round()
    assert list(world.book.kept) == ["3"]

    world.slurm.finish("3")
    world.fleet.connected = [N1, N2]
    await world.helper.round()
    assert list(world.book.kept) == ["1", "2"]


async def test_a_component_whose_node_is_lost_goes_where_no_other_one_is() -> None:
    world = World()
    world.slurm.submit_parts(*PARTS)
    await world.helper.round()
    for job_id in ("1", "2"):
        world.slurm.put_back(job_id)
    world.slurm.nodes_down = {"n2"}

    await world.helper.round()
    await world.helper.round()
    assert list(world.book.kept) == ["1"]

    world.slurm.nodes_down = set()
    await world.helper.round()
    assert world.book.kept["2"].nodes == ("n2",)


async def test_a_component_that_cannot_have_each_node_chooses_first() -> None:
    world = World()
    world.slurm.submit_parts(*PARTS)
    world.slurm.change("2", excluded=("n2",))  # as sbatch does for the others of one with --nodelist=n2

    await world.helper.round()

    assert {job: place.nodes for job, place in world.book.kept.items()} == {"2": ("n1",), "1": ("n2",)}


@pytest.mark.parametrize("dies_after", range(10))
async def test_a_crash_between_any_two_steps_is_repaired_by_the_next_round(dies_after: int) -> None:
    world = World()
    world.slurm.submit_parts(*PARTS)
    world.steps.dies_after = dies_after
    with pytest.raises(Crash):
        await world.helper.round()

    world.restart()
    await world.helper.round()

    assert {job: place.nodes for job, place in world.book.kept.items()} == {"1": ("n1",), "2": ("n2",)}
    assert all(job.started for job in world.slurm.queue.values())


async def test_a_first_component_is_kept_off_a_node_that_joins_and_is_held_for_that_once() -> None:
    world = World(N1, N2)
    world.slurm.submit_parts(("1", "train"), ("2", "sample"))
    await world.helper.round()
    for job_id in ("1", "2"):
        world.slurm.put_back(job_id)
    world.slurm.nodes |= {"n3"}

    for _ in range(4):
        await world.helper.round()
        await world.helper.round()
        world.slurm.put_back("1")

    assert world.slurm.queue["1"].excluded == ("n2", "n3")
    assert [step for step in world.steps.done if step.startswith("hold")] == ["hold 1"]
