"""Node classes: nodes of one cluster whose devices are shared in different ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.orchestrator.placement.config import PlacementConfig, load_placement
from slurm_interleave.orchestrator.placement.groups import Groups
from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending, Placement, plan
from slurm_interleave.orchestrator.placement.sharing import NodeClass

OLD = NodeClass("old[1-2]", "token", ("ilv",), members=3)
SHARDS = NodeClass("s1", "shard", ("shard",))
MIXED = PlacementConfig(classes=(OLD, SHARDS))
NODES = [Node(name, (0, 1)) for name in ("new1", "old1", "old2", "s1")]


def want(job_id: str, group: str, *, nodes: int = 1, devices: int = 1, only: str = "") -> Pending:
    return Pending(job_id, group, "", nodes, devices, only=frozenset([only] if only else []))


def placed(
    *pending: Pending, config: PlacementConfig = MIXED, book: list[Placement] | None = None
) -> dict[str, str]:
    made = plan(pending, book or [], NODES, config.lanes, Groups(config.groups))
    return {one.job_id: f"{','.join(one.nodes)} {one.lane}" for one in made}


def test_a_job_gets_the_lane_of_the_class_that_its_node_is_in() -> None:
    found = placed(want("1", "a", only="new1"), want("2", "b", only="old1"), want("3", "c", only="s1"))

    assert found == {"1": "new1 ilva", "2": "old1 ilv", "3": "s1 shard"}


def test_as_many_members_share_a_device_as_its_class_says() -> None:
    new = [want(f"1{n}", "a", devices=2, only="new1") for n in range(4)]
    old = [want(f"2{n}", "b", devices=2, only="old1") for n in range(4)]

    found = placed(*new, *old)

    assert found == {"10": "new1 ilva", "11": "new1 ilvb", **{f"2{n}": "old1 ilv" for n in range(3)}}


def test_the_nodes_of_one_job_are_of_one_class() -> None:
    assert placed(want("1", "a", nodes=2)) == {"1": "old1,old2 ilv"}
    assert placed(want("1", "a", nodes=3)) == {}


def test_a_job_of_several_devices_goes_where_there_are_no_shards() -> None:
    assert placed(*(want(str(n), str(n), devices=2) for n in range(5))).keys() == {"0", "1", "2"}
    only_shards = PlacementConfig(mode="shard", gres=("shard",))
    assert "shards are of 1 device" in Groups(only_shards.groups).refusal(want("1", "a", devices=2))
    assert Groups(MIXED.groups).refusal(want("1", "a", devices=2)) == ""


def test_seats_that_the_book_has_in_a_class_are_counted_by_that_class() -> None:
    book = [Placement(f"{n}", "a", "", ("old1",), (0, 1), "ilv") for n in range(2)]

    assert placed(want("8", "a", devices=2), want("9", "a", devices=2), book=book) == {
        "8": "old1 ilv",
        "9": "new1 ilva",
    }


FILE = """
[placement]
enabled = true
[node_classes.old]
nodes = "old[1-2]"
mode = "token"
gres = ["ilv"]
members = 3
"""


def test_a_table_of_the_file_is_a_class(tmp_path: Path) -> None:
    file = tmp_path / "interleave.toml"
    file.write_text(FILE)

    config = load_placement(file)

    named = frozenset({"old1", "old2"})
    assert config.lanes == (
        Lane("ilva", 1, lacking=named),
        Lane("ilvb", 1, lacking=named),
        Lane("ilv", 3, only=named),
    )
    assert (config.of("old2").mode, config.of("new1").mode) == ("token", "lane")
    assert config.most_members == 3


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('mode = "token"', 'mode = "tokens"', r"\[node_classes.old\] mode 'tokens' is unknown"),
        ("members = 3", "members = 0", r"\[node_classes.old\] mode token with members 0"),
        ('nodes = "old[1-2]"', 'nodes = ""', "at least one node"),
        ('mode = "token"', "", "needs the keys nodes, mode, gres"),
        ("members = 3", "member = 3", "did you mean 'members'"),
        ("enabled = true", 'classes = ["old"]', r"write a table \[node_classes.NAME\]"),
        (
            "[placement]",
            '[node_classes.two]\nnodes = "old2"\nmode = "token"\ngres = ["x"]\n[placement]',
            "old2 must be in one class alone",
        ),
    ],
)
def test_classes_that_cannot_be_are_refused_with_what_is_wrong(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    file = tmp_path / "interleave.toml"
    file.write_text(FILE.replace(old, new))

    with pytest.raises(ConfigError, match=why):
        load_placement(file)
