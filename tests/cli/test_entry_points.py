"""Commands of `interleave` that other distributions bring."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_interleave.client.cli.interleave import main
from tests.cli.conftest import Call


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a distribution whose entry point `greet` is some object of a module with some code."""

    def install(code: str, target: str) -> None:
        (tmp_path / "other_commands.py").write_text(code)
        info = tmp_path / "other-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[slurm_interleave.commands]\ngreet = {target}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(__import__("sys").modules, "other_commands", raising=False)

    return install


def test_a_command_of_another_distribution_is_listed_and_run(
    installed: Callable[[str, str], None], call: Call
) -> None:
    code = "@click.command()\n@click.argument('who')\ndef greet(who):\n    click.echo('hello ' + who)\n"
    installed(f"import click\n{code}", "other_commands:greet")

    assert call(main, "greet", "alice").out == "hello alice\n"
    assert "greet" in call(main).out


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import no_such_thing\n", "No module named 'no_such_thing'"),
        ("greet = 3\n", "other_commands:greet is no click command"),
    ],
)
def test_one_that_cannot_be_loaded_says_why_and_harms_no_other(
    installed: Callable[[str, str], None], call: Call, code: str, why: str
) -> None:
    installed(code, "other_commands:greet")

    failed = call(main, "greet", "--loud", "alice")
    assert (failed.status, failed.out) == (1, "")
    assert why in failed.err
    assert len(failed.err.splitlines()) == 1
    assert call(main, "status", "--help").status == 0
    assert "greet" in call(main).out


@pytest.mark.parametrize("group", [[], ["db"], ["profile"]])
def test_a_command_that_needs_another_lists_them_whole_in_80_columns(
    call: Call, monkeypatch: pytest.MonkeyPatch, group: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    shown = call(main, *group)
    assert (shown.status, shown.err) == (2, "")
    _, _, listed = shown.out.partition("Commands:\n")
    assert len(listed.splitlines()) > 2
    assert "..." not in listed
