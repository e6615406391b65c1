"""One rule for group names in Python, C and Lua."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import BadName
from slurm_interleave.client.core.names import GROUP_NAME_RULE, parse_group_name
from tests.slurm_plugin.programs import NAMES_C, NAMES_LUA, PLUGIN, compile_c, lua

pytestmark = pytest.mark.slurm

Command = list[str]
ALLOWED = "abcXYZ0189._-"
TELLING = [
    *("a", "A.b_c-9", "0", "n" * 63, "n" * 64, "", " ", ".a", "-a", "_a", "a ", "a\n", "\na", "a b", "a;b"),
    *("none", "NONE", "None", "nonesuch", "é", "aé", "a/b", "a=b", "$(id)", "a\x01", "٣"),
]
near_names = st.text(st.sampled_from(ALLOWED), min_size=1, max_size=70)
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=70)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[Command]:
    """The programs that judge names: one in C, one in Lua."""
    script = tmp_path_factory.mktemp("lua") / "names.lua"
    script.write_text(NAMES_LUA)
    return [[str(compile_c(tmp_path_factory.mktemp("c"), NAMES_C, "names.c"))], [lua(), str(script)]]


def judge(command: Command, names: list[str]) -> list[tuple[bool, bool]]:
    """For each name: is it allowed, does it mean none?"""
    given_names = "".join(name + "\0" for name in names).encode()
    env = {**os.environ, "LUA_PATH": f"{PLUGIN}/?.lua"}
    done = subprocess.run(command, input=given_names, capture_output=True, check=True, env=env, timeout=10)
    return [(line.startswith(b"1"), line.endswith(b"1")) for line in done.stdout.splitlines()]


def allowed(name: str) -> bool:
    try:
        parse_group_name(name)
    except BadName:
        return False
    return True


def test_telling_names_are_judged_the_same_everywhere(commands: list[Command]) -> None:
    expected = [(allowed(name), name.lower() == "none") for name in TELLING]

    for command in commands:
        assert judge(command, TELLING) == expected


@settings(max_examples=60, deadline=None)
@given(names=st.lists(near_names | any_text, min_size=1, max_size=40))
def test_any_names_are_judged_the_same_everywhere(commands: list[Command], names: list[str]) -> None:
    expected = [allowed(name) for name in names]

    for command in commands:
        assert [ok for ok, _ in judge(command, names)] == expected


@pytest.mark.parametrize("source", ["names.h", "interleave_rules.lua"])
def test_the_refusal_words_the_rule_the_same_everywhere(source: str) -> None:
    assert f'"{GROUP_NAME_RULE}"' in (PLUGIN / source).read_text()


def test_a_count_of_gpus_is_a_plain_number(tmp_path: Path) -> None:
    main = NAMES_C.replace("group_is_none", "gpu_count_ok")
    program = [str(compile_c(tmp_path, main, "names.c"))]
    counts = {
        "1": True,
        "8": True,
        "9999": True,
        "0": False,
        "08": False,
        "10000": False,
        "": False,
        "-1": False,
    }

    assert [ok for _, ok in judge(program, list(counts))] == list(counts.values())
