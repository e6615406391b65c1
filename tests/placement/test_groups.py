"""What a site says of groups: how large they are and whose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.placement.config import PlacementConfig
from tests.placement.world import CONFIG, World


def submit(world: World, job_id: str, account: str = "physics", group: str = "demo") -> None:
    world.slurm.submit(job_id, group)
    world.slurm.change(job_id, account=account)


def why(world: World, job_id: str) -> str:
    return world.slurm.queue[job_id].admin_comment.partition(";why=")[2].partition(";")[0]


async def test_a_groups_name_belongs_to_the_account_that_opened_it_until_its_last_member_ends() -> None:
    world = World()
    submit(world, "1")
    submit(world, "2", "art")
    submit(world, "3")

    await world.helper.round()
    assert list(world.book.kept) == ["1", "3"]
    assert why(world, "2") == "group demo belongs to account physics until its last member ends"

    for job_id in ("1", "3"):
        world.slurm.finish(job_id)
    await world.helper.round()
    assert list(world.book.kept) == ["2"]
    assert "why" not in world.slurm.queue["2"].admin_comment


async def test_a_job_that_finds_no_place_owns_no_group() -> None:
    world = World()
    world.slurm.submit("1", devices=3)
    world.slurm.change("1", account="physics")
    submit(world, "2", "art")

    await world.helper.round()

    assert list(world.book.kept) == ["2"]


async def test_where_groups_belong_to_the_cluster_every_account_may_come_in() -> None:
    world = World(config=replace(CONFIG, group_owner="cluster"))
    submit(world, "1")
    submit(world, "2", "art")

    await world.helper.round()

    assert list(world.book.kept) == ["1", "2"]


async def test_a_group_has_no_more_members_than_the_site_allows() -> None:
    world = World(config=replace(CONFIG, group_size=1))
    submit(world, "1")
    submit(world, "2")
    submit(world, "3", group="other")

    await world.helper.round()
    assert list(world.book.kept) == ["1", "3"]
    assert why(world, "2") == "group demo has 1 members with a place and may have no more"

    world.slurm.finish("1")
    await world.helper.round()
    assert "2" in world.book.kept


async def test_a_job_of_several_devices_gets_no_shards_and_is_told_why() -> None:
    world = World(config=replace(CONFIG, mode="shard", gres=("shard",)))
    world.slurm.submit("1", devices=2)
    world.slurm.submit("2", nodes=2)

    await world.helper.round()

    assert list(world.book.kept) == ["2"]
    assert world.slurm.pins["2"].gres == "shard:g0:1"
    assert why(world, "1") == "shards are of 1 device of a node, and it asks for 2"


async def test_why_a_job_waits_is_noted_once_and_for_an_array_once() -> None:
    world = World(config=replace(CONFIG, group_size=1))
    submit(world, "1")
    world.slurm.submit_array("2", "0,1,2")
    world.slurm.change("2", account="physics")

    for _ in range(3):
        await world.helper.round()

    assert world.steps.done.count("note 2") == 1
    assert list(world.slurm.queue) == ["1", "2"]


@pytest.mark.parametrize("wrong", [{"group_owner": "nobody"}, {"group_size": -1}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"\[placement\] group_"):
        PlacementConfig(**wrong)  # type: ignore[arg-type]
