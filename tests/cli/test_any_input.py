"""Whatever is typed behind `sinterleave` is a report or one line that says what was wrong."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_interleave.client.cli.interleave import main as interleave
from slurm_interleave.client.cli.report import command
from slurm_interleave.client.cli.sinterleave import main
from tests.cli.conftest import Call

_SOURCES = ("config", "address", "from_json")
_OPTIONS = [
    option for option in command.params if isinstance(option, click.Option) and option.name not in _SOURCES
]
_HANDY = [
    "",
    "17",
    "1-3",
    "1_[1-3",
    "n[1-2,",
    "R",
    "now",
    "now-1day",
    "%",
    "JobID%-4,",
    ",",
    "group",
    "G",
    "\0",
    "-X",
]
_text = st.one_of(st.sampled_from(_HANDY), st.text(max_size=12))


@st.composite
def _command_lines(draw: st.DrawFn) -> list[str]:
    words = []
    for option in draw(st.lists(st.sampled_from(_OPTIONS), max_size=5)):
        flag, value = draw(st.sampled_from(option.opts)), draw(_text)
        long = flag.startswith("--")
        words.append(flag if option.is_flag else f"{flag}={value}" if long else f"{flag}{value}")
    return words + draw(st.lists(_text, max_size=1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(words=_command_lines())
def test_any_command_line_is_a_report_or_one_line(call: Call, words: list[str]) -> None:
    outcome = call(main, "--from-json", os.devnull, *words)

    if outcome.status:
        assert (outcome.status, outcome.out) in ((1, ""), (2, ""))
        assert outcome.err.startswith("sinterleave: error: ")
        assert len(outcome.err.splitlines()) == 1
    else:
        assert outcome.err == ""


FILES = [
    b"",
    b"\xff\xfe\0",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"9" * 5_000,
    b"5",
    b"null",
    b"[1, null, {}]",
    b"{}\n[]\n",
]
READERS = [
    "pair --jobs",
    "profile import",
    "simulate",
    "timeline -o page.html --from-json",
    "timeline -o page.html --work",
]


@pytest.mark.parametrize("reader", READERS)
def test_any_file_is_used_or_is_what_one_line_of_error_is_about(
    call: Call, reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file"
    for content in FILES:
        file.write_bytes(content)
        outcome = call(interleave, *reader.split(), str(file))

        assert outcome.status in (0, 1, 2), content[:9]
        assert len(outcome.err.splitlines()) == (outcome.status > 0), (content[:9], outcome.err)


def test_a_report_of_a_file_that_is_no_text_is_one_line(call: Call, tmp_path: Path) -> None:
    for content in FILES:
        (tmp_path / "file").write_bytes(content)
        outcome = call(main, "--from-json", str(tmp_path / "file"))

        assert outcome.status in (0, 1, 2), content[:9]
        assert len(outcome.err.splitlines()) == (outcome.status > 0), (content[:9], outcome.err)
