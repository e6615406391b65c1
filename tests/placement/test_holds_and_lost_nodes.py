"""Jobs that were released and did not start: held by hand, or pinned to a node that is lost."""

from __future__ import annotations

import pytest

from slurm_interleave.orchestrator.placement.plan import Node
from tests.placement.fakes import Crash
from tests.placement.world import CONFIG, N1, N2, World


@pytest.fixture
def world() -> World:
    return World()


async def test_a_job_that_the_user_holds_after_its_release_stays_held(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.put_back("1")
    world.slurm.change("1", priority=0, reason="JobHeldUser")

    await world.helper.round()
    world.restart()
    await world.helper.round()

    assert world.slurm.queue["1"].held
    assert list(world.book.kept) == ["1"]


async def test_a_hold_of_a_job_whose_place_was_given_back_lasts_until_its_user_ends_it(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.put_back("1")
    world.slurm.change("1", priority=0, reason="JobHeldUser")
    await world.book.drop("1")

    await world.helper.round()
    assert world.slurm.queue["1"].held
    world.slurm.change("1", priority=1, reason="None")
    await world.helper.round()
    await world.helper.round()

    assert world.slurm.queue["1"].started


async def test_a_job_that_waits_on_a_node_that_went_down_is_placed_elsewhere(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.nodes_down = {"n1"}  # its agent is still connected
    world.slurm.put_back("1")

    await world.helper.round()
    await world.helper.round()

    assert world.slurm.queue["1"].started
    assert world.slurm.pins["1"].nodes == world.book.kept["1"].nodes == ("n2",)
    assert world.slurm.queue["1"].admin_comment.endswith(";state=released")
    assert world.over == []  # it only moved: nothing of it is accounted for


@pytest.mark.parametrize(
    "state",
    ["drained", "draining*", "mixed+drain", "drained@", "failing", "fail*", "inval", "reboot^", "down~"],
)
async def test_where_slurm_starts_no_job_none_is_placed_none_waits_and_those_that_run_stay(
    world: World, state: str
) -> None:
    for job_id in ("1", "2"):
        world.slurm.submit(job_id)
        await world.helper.round()
    world.slurm.put_back("2")
    world.slurm.other_states = {"n1": state, "n2": "idle"}
    world.slurm.submit("3", group="another")
    world.slurm.submit("4")

    await world.helper.round()
    await world.helper.round()

    assert {job_id: world.book.kept[job_id].nodes for job_id in "1234"} == {
        "1": ("n1",),
        "2": ("n2",),
        "3": ("n2",),
        "4": ("n2",),
    }
    assert all(job.started for job in world.slurm.queue.values())


@pytest.mark.parametrize(
    "state", ["idle", "mixed*", "allocated@", "powered_down", "idle~", "planned", "maint"]
)
async def test_a_node_in_any_other_state_takes_jobs(state: str) -> None:
    world = World(N1)
    world.slurm.other_states = {"n1": state}
    world.slurm.submit("1")

    await world.helper.round()

    assert world.slurm.queue["1"].started


async def test_with_no_other_node_a_job_of_a_node_that_went_down_waits_held_without_a_pin() -> None:
    world = World(N1)
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.nodes_down = {"n1"}
    world.slurm.put_back("1")

    await world.helper.round()
    assert world.slurm.queue["1"].held
    assert world.slurm.pins["1"].nodes == ()
    assert world.book.kept == {}

    world.slurm.nodes_down = set()
    await world.helper.round()
    assert world.slurm.queue["1"].started


@pytest.mark.parametrize("more", range(5))
async def test_a_crash_while_a_job_leaves_a_node_that_went_down_is_repaired(world: World, more: int) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.nodes_down = {"n1"}
    world.slurm.put_back("1")
    world.steps.dies_after = len(world.steps.done) + more
    with pytest.raises(Crash):
        await world.helper.round()

    world.restart()
    await world.helper.round()
    await world.helper.round()

    assert world.slurm.queue["1"].started
    assert world.slurm.pins["1"].nodes == ("n2",)


async def test_a_job_outlasts_the_restart_of_its_agent_where_it_is_but_not_its_loss(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.put_back("1")
    for seconds in (0, CONFIG.away_s - 1):  # away, and back in time; twice
        world.fleet.connected = [N2]
        await world.helper.round()
        world.now += seconds
        await world.helper.round()
        world.fleet.connected = [N1, N2]
        await world.helper.round()
        assert world.book.kept["1"].nodes == ("n1",)
        assert world.slurm.queue["1"].startable

    world.fleet.connected = [N2]
    await world.helper.round()
    world.now += CONFIG.away_s + 1
    await world.helper.round()
    await world.helper.round()

    assert world.book.kept["1"].nodes == ("n2",)


@pytest.mark.parametrize("change", [{}, {"priority": 0, "reason": "JobHeldUser"}])
async def test_a_running_job_or_one_that_its_user_holds_stays_in_the_book_of_a_node_that_is_down(
    world: World, change: dict[str, object]
) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    if change:
        world.slurm.put_back("1")
        world.slurm.change("1", **change)
    done = list(world.steps.done)
    world.slurm.nodes_down = {"n1"}

    await world.helper.round()

    assert world.steps.done == done


async def test_a_job_that_slurm_held_since_its_launch_failed_is_left_alone(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.put_back("1")
    world.slurm.change("1", priority=0, reason="launch_failed_requeued_held")
    world.slurm.nodes_down = {"n1"}
    done = list(world.steps.done)

    await world.helper.round()
    assert world.steps.done == done
    await world.book.drop("1")
    await world.helper.round()

    assert world.steps.done == [*done, "drop 1"]


@pytest.mark.parametrize("wish", [{"pinned": ("n2",)}, {"excluded": ("n1",)}])
async def test_a_job_gets_a_node_that_its_user_named_or_did_not_exclude(
    world: World, wish: dict[str, object]
) -> None:
    world.slurm.submit("1")
    world.slurm.change("1", **wish)

    await world.helper.round()

    assert world.book.kept["1"].nodes == ("n2",)


async def test_a_pin_of_ours_is_no_wish_of_the_user(world: World) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.put_back("1")
    await world.book.drop("1")
    world.fleet.connected = [N2]

    await world.helper.round()
    await world.helper.round()

    assert world.book.kept["1"].nodes == ("n2",)


@pytest.mark.parametrize(
    "moved",
    [
        {"pinned": ("n2",)},
        {"pinned": ()},
        {"gres": frozenset({"ilva:g1:1"})},
        {"gres": frozenset()},
        {"max_nodes": 2},
    ],
)
async def test_a_job_that_an_administrator_moved_is_held_and_put_back_into_its_place(
    world: World, moved: dict[str, object]
) -> None:
    world.slurm.submit("1")
    await world.helper.round()
    world.slurm.put_back("1")
    world.slurm.change("1", **moved)

    await world.helper.round()
    assert world.slurm.queue["1"].held
    await world.helper.round()

    assert world.slurm.queue["1"].started
    assert (world.slurm.pins["1"].nodes, world.slurm.queue["1"].gres) == (("n1",), frozenset({"ilva:g0:1"}))
    assert world.slurm.queue["1"].max_nodes == 1


async def test_a_job_whose_number_of_nodes_changed_before_it_had_a_place_gets_that_which_it_asked_for(
    world: World,
) -> None:
    world.slurm.submit("1")
    world.slurm.change("1", max_nodes=2)

    await world.helper.round()

    assert world.slurm.queue["1"].max_nodes == len(world.book.kept["1"].nodes) == 1


@pytest.mark.parametrize("excluded", [("n1",), (), ("n1", "n2"), ("n2", "n3")])
async def test_a_first_component_whose_excluded_nodes_were_changed_is_put_back_into_its_place(
    excluded: tuple[str, ...],
) -> None:
    world = World(N1, N2, Node("n3", (0, 1)))
    world.slurm.submit_parts(("1", "train"), ("2", "sample"))
    await world.helper.round()
    for job_id in ("1", "2"):
        world.slurm.put_back(job_id)
    done = list(world.steps.done)
    await world.helper.round()
    assert world.steps.done == done

    world.slurm.change("1", excluded=excluded)
    await world.helper.round()
    moved = set(excluded) != {"n2", "n3"}
    assert world.slurm.queue["1"].held == moved
    await world.helper.round()

    assert world.slurm.queue["1"].started == moved
    assert world.slurm.queue["1"].excluded == ("n2", "n3")
    assert world.book.kept["1"].nodes == ("n1",)


async def test_a_job_whose_pin_slurm_writes_otherwise_is_put_back_once(world: World) -> None:
    world.slurm.writes_gres = frozenset({"ilva:g0"})
    world.slurm.submit("1")
    for _ in range(4):
        await world.helper.round()
        await world.helper.round()
        world.slurm.put_back("1")

    assert world.steps.done.count("hold 1") == 1
