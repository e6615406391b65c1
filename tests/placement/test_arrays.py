"""Job arrays: Slurm has one record for all tasks that have not become jobs of their own."""

from __future__ import annotations

import json

import pytest

from slurm_interleave.orchestrator.placement.squeue import parse_squeue, task_numbers
from tests.placement.fakes import Crash
from tests.placement.world import N1, World

A_ROUND_FOR_EACH = 4


@pytest.fixture
def world() -> World:
    return World(N1)  # two devices, two seats on each


async def rounds(world: World, count: int = A_ROUND_FOR_EACH) -> None:
    for _ in range(count):
        await world.helper.round()


def running(world: World) -> list[int]:
    """Return the numbers of the tasks that run."""
    return sorted(job.task for job in world.slurm.queue.values() if job.started and job.task is not None)


async def test_each_task_gets_a_place_of_its_own_as_far_as_there_are_seats(world: World) -> None:
    world.slurm.submit_array("7", "0,1,2,3,4,5")

    await rounds(world)

    assert running(world) == [0, 1, 2, 3]
    assert world.slurm.queue["7"].tasks == "4,5"
    assert world.slurm.queue["7"].held
    assert sorted(world.book.kept) == ["10", "11", "8", "9"]


async def test_the_tasks_that_wait_follow_when_others_end_and_the_last_one_has_the_arrays_id(
    world: World,
) -> None:
    world.slurm.submit_array("7", "0,1,2,3,4,5")
    await rounds(world)

    for job_id in ("8", "9"):
        world.slurm.finish(job_id)
    await rounds(world)

    assert running(world) == [2, 3, 4, 5]
    assert world.slurm.queue["7"].task == 5
    assert "7" in world.book.kept


async def test_no_more_tasks_are_placed_than_the_array_lets_run_at_once(world: World) -> None:
    world.slurm.submit_array("7", "0,1,2,3", at_once=1)

    await rounds(world)
    assert running(world) == [0]

    world.slurm.finish("8")
    await rounds(world)
    assert running(world) == [1]


async def test_the_last_task_waits_too_while_the_array_lets_no_more_run(world: World) -> None:
    world.slurm.submit_array("7", "0,1", at_once=1)
    await rounds(world)
    assert (running(world), world.slurm.queue["7"].task) == ([0], 1)

    world.slurm.finish("8")
    await rounds(world)
    assert running(world) == [1]


@pytest.mark.parametrize("dies_after", range(12))
async def test_a_crash_between_any_two_steps_loses_no_task(world: World, dies_after: int) -> None:
    world.slurm.submit_array("7", "1,2")
    world.steps.dies_after = dies_after
    with pytest.raises(Crash):
        await rounds(world, 5)

    world.restart()
    await rounds(world)

    assert running(world) == [1, 2]
    assert len(world.book.kept) == 2


async def test_a_step_on_one_task_leaves_the_others_alone(world: World) -> None:
    world.slurm.submit_array("7", "0,1,2,3")
    await rounds(world)
    world.slurm.put_back("7")
    world.slurm.nodes_down = {"n1"}

    await world.helper.round()

    assert running(world) == [0, 1, 2]
    assert world.steps.done[-5:] == ["note 7", "hold 7", "unpin 7", "drop 7", "forget 7"]


async def test_an_array_that_somebody_released_is_held_again_without_its_running_tasks(world: World) -> None:
    world.slurm.submit_array("7", "0,1,2,3,4,5")
    await rounds(world)
    world.slurm.change("7", priority=9, reason="None")

    await world.helper.round()

    assert world.slurm.queue["7"].held
    assert running(world) == [0, 1, 2, 3]


async def test_a_task_that_slurm_refuses_holds_up_no_other_job(world: World) -> None:
    world.slurm.submit_array("7", "0,1")
    world.slurm.submit("8", "other")
    world.slurm.fails = {"7", "9"}

    await rounds(world)

    assert world.slurm.queue["8"].started


@pytest.mark.parametrize(
    ("task", "text", "name"),
    [
        (None, "0,2-4%2", "7_[0,2-4]"),
        ({"set": False, "infinite": False, "number": 0}, "0-1", "7_[0-1]"),
        ({"set": True, "infinite": False, "number": 0}, "", "7_0"),
        (0, "", "7_0"),
        # The last one: 22.05 names it once it was changed, 26.05 when it has started.
        ({"set": False, "infinite": False, "number": 0}, "3%2", "7_3"),
        (None, "3", "7_3"),
    ],
)
def test_a_record_of_an_array_is_named_so_that_no_other_task_is_meant(
    task: object, text: str, name: str
) -> None:
    record = {"job_id": 7, "job_state": "PENDING", "priority": 0, "array_job_id": 7, "array_max_tasks": 2}
    queue = {"jobs": [{**record, "array_task_id": task, "array_task_string": text}]}

    (job,) = parse_squeue(json.dumps(queue))

    assert (job.name, job.tasks_at_once) == (name, 2)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", []),
        ("7", [7]),
        ("0,2-4", [0, 2, 3, 4]),
        ("5-20:5,9", [5, 10, 15, 20, 9]),
        ("0-999999999", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_the_first_numbers_of_an_array_are_read(text: str, numbers: list[int]) -> None:
    assert task_numbers(text, 6) == numbers
