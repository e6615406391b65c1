"""One rule for group names in Python, C and Lua."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_interleave.client.core.errors import BadName
from slurm_interleave.client.core.names import GROUP_NAME_RULE, parse_group_name
from slurm_interleave.node_agent.config import _BACKENDS
from slurm_interleave.node_agent.movers import APPS
from tests.slurm_plugin.programs import NAMES_C, NAMES_LUA, PLUGIN, SANITIZED, VALUES_C, compile_c, lua

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
    done = subprocess.run(command, input=given_names, capture_output=True, check=True, env=env, timeout=60)
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


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prints what the text of an option becomes."""
    return compile_c(tmp_path_factory.mktemp("values"), VALUES_C, "names.c", flags=SANITIZED)


def read(program: Path, what: str, *texts: str) -> list[str]:
    argv = [str(program), what, *texts]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def test_a_count_of_gpus_is_a_plain_number(values: Path) -> None:
    good, bad = ("1", "8", "9999"), ("0", "08", "10000", "", "-1", " 1")

    assert read(values, "gpus", *good, *bad) == [*good, *("-" for _ in bad)]


def test_backends_are_words_with_commas_between_them(values: Path) -> None:
    good = {"cuda": "cuda", "app_channel,cuda": "app_channel+cuda", "a+b,c": "a+b+c", "None": ""}
    good["x" * 127] = "x" * 127
    bad = ("", ",", "cuda,", ",cuda", "a,,b", "a b", "a;b", "é", "x" * 128, "x" * 126 + ",y")

    assert read(values, "backend", *good, *bad) == [*good.values(), *("-" for _ in bad)]


def test_percent_are_whole_with_or_without_the_sign(values: Path) -> None:
    good = {"0": "0", "10": "10", "10%": "10", "007": "7", "1000": "1000", "None": ""}
    bad = ("", "%", "10%%", "-1", "1001", "10000", "1.5", "10 %", " 1", "1e2", "٣")

    assert read(values, "percent", *good, *bad) == [*good.values(), *("-" for _ in bad)]


def test_a_time_has_one_of_slurms_forms(values: Path) -> None:
    # The forms of --time in sbatch(1).
    good = {
        "90": "5400",
        "1:30": "90",
        "0:01": "1",
        "1:30:05": "5405",
        "2-12": "216000",
        "1-0:30": "88200",
        "1-02:03:04": "93784",
        "366-0": "31622400",
        "UNLIMITED": "",
        "infinite": "",
    }
    bad = (
        *(
            "",
            "0",
            "0:0",
            "x",
            "-1",
            "1-",
            "1-2-3",
            "1:2:3:4",
            "1-1:2:3:4",
            ":",
            "1:",
            ":1",
            "1.5",
            "1 ",
            "+1",
        ),
        *("366-0:0:1", "99999999-0", "123456789", "1e3", "0x10", "٣"),
    )

    assert read(values, "time", *good, *bad) == [*good.values(), *("-" for _ in bad)]


@given(parts=st.tuples(*[st.integers(0, 99)] * 3), days=st.none() | st.integers(0, 300))
def test_any_time_is_the_sum_of_its_parts(values: Path, parts: tuple[int, ...], days: int | None) -> None:
    hours, minutes, seconds = parts
    total = ((24 * (days or 0) + hours) * 60 + minutes) * 60 + seconds
    text = f"{hours}:{minutes:02}:{seconds}" if days is None else f"{days}-{hours}:{minutes}:{seconds}"

    assert read(values, "time", text) == [str(total) if total else "-"]


def test_the_known_backends_are_those_of_the_agents() -> None:
    listed = re.search(r"backends = \{(.+)\}", (PLUGIN / "interleave_rules.lua").read_text())

    assert listed is not None
    assert set(re.findall(r'"(\w+)"', listed[1])) == {*APPS, *_BACKENDS}
