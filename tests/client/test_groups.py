"""Groups that a site declares in its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.client.core.groups import DeclaredGroup, load_groups
from slurm_interleave.orchestrator.core.rules import Rules, with_groups


def loaded(folder: Path, text: str) -> dict[str, DeclaredGroup]:
    (folder / "interleave.toml").write_text(text)
    return load_groups(folder / "interleave.toml")


def test_a_group_has_nodes_and_devices_and_may_have_users_and_a_limit(tmp_path: Path) -> None:
    groups = loaded(
        tmp_path,
        '[groups.rl]\nnodes = ["g1", "g2"]\ndevices = [0, 1]\n'
        '[groups."a.b"]\nnodes = ["g1"]\ndevices = [2]\nusers = ["alice"]\nmax_hold_s = 60\n',
    )

    assert groups == {
        "rl": DeclaredGroup(("g1", "g2"), (0, 1)),
        "a.b": DeclaredGroup(("g1",), (2,), ("alice",), 60.0),
    }


def test_without_a_file_or_the_section_there_are_none(tmp_path: Path) -> None:
    assert load_groups(None) == loaded(tmp_path, "[client]\n") == {}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("[groups.rl]\nnodes = ['g1']", r"\[groups.rl\]: needs the keys nodes, devices"),
        ("[groups.rl]\nnodes = []\ndevices = [0]", "at least one node"),
        ("[groups.rl]\nnodes = ['g1']\ndevices = [-1]", "at least one index, from 0"),
        ("[groups.rl]\nnodes = ['g1']\ndevices = ['x']", "devices: .* cannot be used"),
        ("[groups.rl]\nnodes = ['g1']\ndevices = [0]\nuser = ['a']", "did you mean 'users'"),
        ("[groups.rl]\nnodes = ['g1']\ndevices = [0]\nmax_hold_s = -1", "must be 0 or more"),
        ("[groups.'no good']\nnodes = ['g1']\ndevices = [0]", "'no good' is not allowed"),
        ("[groups]\nrl = 1", r"must be a table, as in \[groups.rl\]"),
    ],
)
def test_a_group_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, table: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        loaded(tmp_path, table)


def test_the_limit_of_a_declared_group_is_one_of_its_turns() -> None:
    groups = {"rl": DeclaredGroup(("g1",), (0,), max_hold_s=60.0), "free": DeclaredGroup(("g1",), (1,))}

    rules = with_groups(Rules(max_hold_s=5.0, max_hold_by_group={"other": 7.0}), groups)

    assert [rules.max_hold_of(name) for name in ("rl", "free", "other")] == [60.0, 5.0, 7.0]


def test_a_limit_in_two_places_is_refused() -> None:
    groups = {"rl": DeclaredGroup(("g1",), (0,), max_hold_s=60.0)}

    with pytest.raises(ConfigError, match="remove one"):
        with_groups(Rules(max_hold_by_group={"rl": 7.0}), groups)


def test_a_group_without_users_is_open_to_all_and_root_may_always() -> None:
    named = DeclaredGroup(("g1",), (0,), ("alice",))

    assert DeclaredGroup(("g1",), (0,)).open_to("bob", 1001)
    assert named.open_to("alice", 1000)
    assert named.open_to("root", 0)
    assert not named.open_to("bob", 1001)
