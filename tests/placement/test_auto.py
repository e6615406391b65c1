"""A job that leaves its group open gets the partners that it fits best, by what is known of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.states import SliceState
from slurm_interleave.orchestrator.pairing.config import PairingConfig
from slurm_interleave.orchestrator.pairing.known import Known
from slurm_interleave.orchestrator.placement.groups import Groups
from slurm_interleave.orchestrator.placement.plan import Lane, Node, Pending, Placement, plan
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.slices import SliceFilter

NODES = [Node("n1", (0, 1, 2))]
LANES = (Lane("ilva", 1), Lane("ilvb", 1))
BOOK = [Placement(name, f"auto-{name}", "", ("n1",), (n,), "ilva") for n, name in enumerate(("1", "2"))]
WORKLOADS = {"1": "busy", "2": "light", "7": "mine"}
NOW = 1e9


def partner(worths: dict[str, float | None], size: int = 2) -> str:
    """Return the group of job 7, if sharing with a workload is worth that."""

    def fit(workloads: Sequence[str]) -> float | None:
        assert len(workloads) == size
        return worths[workloads[0]]

    [made] = plan([Pending("7", "auto", "", 1, 1)], BOOK, NODES, LANES, Groups(workloads=WORKLOADS, fit=fit))
    return made.group


def test_the_group_that_saves_the_most_is_joined_though_it_is_not_the_first() -> None:
    assert partner({"busy": 0.1, "light": 0.8}) == "auto-2"


def test_the_first_of_two_that_are_not_known_is_joined() -> None:
    assert partner({"busy": 0.0, "light": 0.0}) == "auto-1"


def test_a_group_that_would_lose_is_not_joined() -> None:
    assert partner({"busy": None, "light": 0.0}) == "auto-2"
    assert partner({"busy": None, "light": None}) == "auto-7"


def turns(name: str, held: float, off: float) -> list[Slice]:
    row = Slice(
        epoch=0, job_id=name, group="g", role="", uid=1, user="u", account="ml", partition="p", name=name,
        backend="sim", nodes=("n1",), devices=("n1/0",), phase="train", state=SliceState.YIELDED, requested=0,
        granted=0, ended=0, switched=True, switch_s=2, snapshot_s=1, restore_s=1, switch_bytes=2, off_s=off,
    )  # fmt: skip
    starts = [NOW - 9000 + n * (held + off) for n in range(6)]
    return [replace(row, requested=at, granted=at, ended=at + held) for at in starts]


def known(tmp_path: Path, rows: list[Slice]) -> Known:
    def slices(wanted: SliceFilter) -> Iterator[Sequence[Slice]]:
        yield [row for row in rows if row.ended > wanted.start]

    return Known(slices, PairingConfig(profiles=str(tmp_path / "profiles.json")), lambda: NOW)


def test_what_sharing_is_worth_comes_from_the_turns_that_ended(tmp_path: Path) -> None:
    found = known(tmp_path, turns("light", 100, 300) + turns("full", 300, 1))
    found.look()

    both = found.worth(["ml/light/-/1x1", "ml/light/-/1x1"])
    assert both is not None
    assert both > 0.8
    assert found.worth(["ml/light/-/1x1", "ml/full/-/1x1"]) is None
    assert found.worth(["ml/light/-/1x1", "ml/new/-/1x1"]) == 0.0


def test_each_turn_is_taken_once_and_new_ones_change_what_is_known(tmp_path: Path) -> None:
    rows = turns("job", 300, 1)
    found = known(tmp_path, rows)
    found.look()
    assert found.worth(["ml/job/-/1x1"] * 2) is None

    later = [replace(r, granted=r.granted + 8000, ended=r.ended + 8000) for r in turns("job", 50, 400)]
    rows += later * 10
    found.look()

    assert found.worth(["ml/job/-/1x1"] * 2)


def test_a_file_of_profiles_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    found = known(tmp_path, [])
    (tmp_path / "profiles.json").write_text("{")

    with pytest.raises(BadArgument, match="cannot be read"):
        found.look()
