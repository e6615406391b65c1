"""What the documents show can be typed: configurations load, and commands have their options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from settings_page import SECTIONS as SETTINGS

from slurm_interleave.client.cli.commands import command as interleave
from slurm_interleave.client.cli.report import command as sinterleave
from slurm_interleave.client.core.config import load_section
from slurm_interleave.client.core.groups import load_groups
from slurm_interleave.client.doctor.own import SECTIONS, sections
from slurm_interleave.node_agent.config import load
from slurm_interleave.orchestrator.placement.config import load_placement

ROOT = Path(__file__).parents[1]
_FOLDERS = ("docs", "orchestrator", "node_agent", "sql", "slurm_plugin", "deploy", "examples", "benchmarks")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(each for name in _FOLDERS for each in (ROOT / name).rglob("*.md"))])
COMMANDS: dict[str, click.Command] = {"interleave": interleave, "sinterleave": sinterleave}
_COMMAND = re.compile(r"`(s?interleave [^`\n]+)`|^(?: {4})?(?:\$ )?(s?interleave [^\n]*)", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def configurations() -> Iterator[object]:
    for path in DOCUMENTS:
        for number, text in enumerate(_BLOCK.findall(path.read_text())):
            yield pytest.param(text, id=f"{path.relative_to(ROOT)}-{number}")


def lines() -> Iterator[object]:
    for path in DOCUMENTS:
        text = path.read_text()
        for found in _COMMAND.finditer(text):
            at = text.count("\n", 0, found.start()) + 1
            yield pytest.param(found[1] or found[2], id=f"{path.relative_to(ROOT)}:{at}")


def unknown(line: str) -> list[str]:
    """Return the words of a command line that its program does not know."""
    name, *words = shlex.split(line, comments=True)
    command = COMMANDS[name]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return [words[0]]
        command, words = found, words[1:]
    known = {option for each in command.get_params(click.Context(command)) for option in each.opts}
    typed = words[: words.index("--")] if "--" in words else words
    return [word for word in typed if word.startswith("-") and re.split(r"\[?=", word)[0] not in known]


@pytest.mark.parametrize("text", list(configurations()))
def test_each_configuration_that_is_shown_can_be_used_with_what_it_has_in_comments(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "interleave.toml"
    path.write_text(re.sub(r"^#(?=\w+ = |\[)", "", text, flags=re.MULTILINE))

    assert sections(path) is None
    load(path, {"node": "n1"})
    load_groups(path)
    load_placement(path)
    for section, (cls, _) in SETTINGS.items():
        assert section.removesuffix(".NAME") in SECTIONS
        if not section.endswith(".NAME"):
            load_section(cls, section, path)


@pytest.mark.parametrize("line", list(lines()))
def test_each_command_that_is_shown_has_the_options_that_it_is_shown_with(line: str) -> None:
    assert unknown(line) == []


def test_each_link_to_a_file_leads_to_one() -> None:
    found = [(path, link) for path in DOCUMENTS for link in _LINK.findall(path.read_text())]

    assert len(found) > 50
    assert [f"{path}: {link}" for path, link in found if not (path.parent / link).exists()] == []


def test_a_command_and_an_option_that_there_are_not_are_found() -> None:
    assert unknown("interleave statsu rl") == ["statsu"]
    assert unknown("interleave db prune --older-then 90days  # --dry-run") == ["--older-then"]
    assert unknown("interleave run --idle-yield=20 -- python train.py --steps 3") == []
