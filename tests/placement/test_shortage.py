"""A job that asks for more than the nodes have waits and says so, however empty they are."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from slurm_interleave.orchestrator.placement.admin_comment import parse_comment
from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending
from slurm_interleave.orchestrator.placement.shortage import shortages
from tests.placement.world import World

NODES = [Node("n1", (0, 1)), Node("n2", (0, 1)), Node("n3", (0, 1, 2, 3))]
LANES = [Lane("ilva", 1), Lane("ilvb", 1)]
JOB = Pending("1", "demo", "", 1, 2)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (JOB, ""),
        (replace(JOB, nodes=3), ""),
        (replace(JOB, devices=4), ""),
        (replace(JOB, devices=9), "1 node with 9 devices each, and of the nodes .* 0 would do; .* than 4"),
        (replace(JOB, nodes=2, devices=4), "2 nodes with 4 devices each, .* 1 would do"),
        (replace(JOB, nodes=4, devices=1), "4 nodes with 1 device each, .* 3 would do"),
        (replace(JOB, devices=4, avoid=frozenset({"n3"})), "0 would do; none of them has more than 2"),
        (replace(JOB, only=frozenset({"n9"})), "0 would do; none of them has more than 0"),
        (replace(JOB, only=frozenset({"n1"})), ""),
    ],
)
def test_of_what_no_free_nodes_would_do_for_it_is_said_how_far_they_go(job: Pending, said: str) -> None:
    [text] = shortages([job], NODES, LANES).values() or [""]

    assert re.search(said, text) if said else text == ""


def test_nodes_of_another_class_count_by_their_own_lanes() -> None:
    lanes = [Lane("ilva", 1, lacking=frozenset({"n3"})), Lane("ilw", 2, only=frozenset({"n3"}))]

    assert shortages([replace(JOB, nodes=2), replace(JOB, devices=4)], NODES, lanes) == {}
    assert "2 would do" in shortages([replace(JOB, nodes=3)], NODES, lanes)["1"]


def why(world: World, job_id: str) -> str:
    comment = parse_comment(world.slurm.queue[job_id].admin_comment)
    assert comment is not None
    return comment.why


async def test_a_held_job_that_no_node_is_large_enough_for_says_why_until_there_is_one() -> None:
    world = World()
    world.slurm.submit("1", devices=3)
    world.slurm.submit("2", devices=2)

    await world.helper.round()

    assert "1 node with 3 devices each" in why(world, "1")
    assert world.slurm.queue["2"].started
    world.fleet.connected += [Node("n3", (0, 1, 2))]
    await world.helper.round()
    assert why(world, "1") == ""
    assert world.slurm.pins["1"].nodes == ("n3",)


async def test_before_the_first_agent_has_come_back_nothing_is_said_of_nodes() -> None:
    world = World()
    world.fleet.connected = []
    world.slurm.submit("1")

    await world.helper.round()

    assert why(world, "1") == ""
