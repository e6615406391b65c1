"""A job is placed on nodes that have what its user asked for, and says so where there are none."""

from __future__ import annotations

import pytest

from slurm_interleave.orchestrator.placement.traits import Traits, Wish
from tests.placement.world import World

H200 = Traits(frozenset({"h200"}), frozenset({"ib", "new"}))
A100 = Traits(frozenset({"a100"}), frozenset({"ib"}))
COMMENT = "interleave:v1;group={};nodes=1;devices=1;role=;gpu_type={};state=held"


@pytest.fixture
def mixed() -> World:
    world = World()
    world.slurm.has = {"n1": A100, "n2": H200}
    return world


def submit(
    world: World, job_id: str, *, gpu_type: str = "", constraint: str = "", group: str = "demo"
) -> None:
    world.slurm.submit(job_id, group)
    world.slurm.change(job_id, constraint=constraint)
    if gpu_type:
        world.slurm.change(job_id, admin_comment=COMMENT.format(group, gpu_type))


async def test_a_job_goes_to_a_node_that_has_the_type_of_gpu_that_it_asks_for(mixed: World) -> None:
    submit(mixed, "1", gpu_type="h200")
    submit(mixed, "2", gpu_type="a100", group="other")

    await mixed.helper.round()

    assert mixed.slurm.pins["1"].nodes == ("n2",)
    assert mixed.slurm.pins["2"].nodes == ("n1",)
    assert "gpu_type=h200" in mixed.slurm.queue["1"].admin_comment


async def test_members_of_a_group_that_ask_for_different_types_are_not_put_together(mixed: World) -> None:
    submit(mixed, "1", gpu_type="h200")
    submit(mixed, "2", gpu_type="a100")

    await mixed.helper.round()

    assert (mixed.slurm.pins["1"].nodes, mixed.slurm.pins["2"].nodes) == (("n2",), ("n1",))


async def test_a_job_goes_to_a_node_that_has_its_features(mixed: World) -> None:
    submit(mixed, "1", constraint="ib&new")

    await mixed.helper.round()

    assert mixed.slurm.pins["1"].nodes == ("n2",)


@pytest.mark.parametrize(("gpu_type", "constraint"), [("b300", ""), ("", "ib&old"), ("a100", "new")])
async def test_a_job_that_no_node_suits_waits_and_says_why(
    mixed: World, gpu_type: str, constraint: str
) -> None:
    submit(mixed, "1", gpu_type=gpu_type, constraint=constraint)
    submit(mixed, "2")

    await mixed.helper.round()

    assert "1" not in mixed.slurm.pins
    comment = mixed.slurm.queue["1"].admin_comment
    assert f"why=no node has {Wish(gpu_type, constraint)}" in comment
    assert mixed.slurm.queue["2"].started


async def test_what_nodes_have_is_asked_only_where_a_waiting_job_cares(mixed: World) -> None:
    submit(mixed, "1")
    await mixed.helper.round()
    assert mixed.slurm.traits_asked == 0

    submit(mixed, "2", gpu_type="h200")
    await mixed.helper.round()
    assert mixed.slurm.traits_asked == 1

    await mixed.helper.round()  # it has started
    assert mixed.slurm.traits_asked == 1


@pytest.mark.parametrize(
    ("wish", "meets"),
    [
        (Wish(), True),
        (Wish("h200"), True),
        (Wish("a100"), False),
        (Wish("", "ib"), True),
        (Wish("", "old|new"), True),
        (Wish("", "old|older"), False),
        (Wish("", "ib&old"), False),
        (Wish("h200", "ib&new"), True),
    ],
)
def test_a_wish_is_met_by_a_node_that_has_all_of_it(wish: Wish, *, meets: bool) -> None:
    assert wish.met_by(H200) is meets


def test_a_type_of_gpu_may_be_a_feature_of_the_node_since_shared_gres_are_typed_by_index() -> None:
    assert Wish("new").met_by(H200)


def test_a_node_with_gpus_of_several_types_is_none_of_one_type() -> None:
    assert not Wish("h200").met_by(Traits(frozenset({"h200", "a100"})))
