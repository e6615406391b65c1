"""Each folder's README lists what its daemon logs, no more and no less."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from tests.log_events import Logged, Unclear, logged

ROOT = Path(__file__).parents[1]
_SECTION = re.compile(r"^(?:## Log events|Events in the log:)(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_EVENT = re.compile(r"[a-z]\w*(?:\.[a-z]\w*)?")
_DAEMONS = ("orchestrator", "node_agent")
# What the daemons share is logged by each.
_READMES = {"client": [ROOT / daemon / "README.md" for daemon in _DAEMONS]}


def sources() -> list[Path]:
    folders = ("client", "sql", *_DAEMONS)
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def readmes(file: Path) -> list[Path]:
    """Return who lists the events of *file*: the nearest README that has such a list."""
    shared = _READMES.get(file.relative_to(ROOT).parts[0])
    if shared:
        return shared
    near = [folder / "README.md" for folder in file.parents if folder.is_relative_to(ROOT)]
    return [next(readme for readme in near if readme.exists() and _SECTION.search(readme.read_text()))]


def listed(readme: Path) -> set[str]:
    [section] = _SECTION.findall(readme.read_text())
    return {word for word in re.findall(r"`([^`]+)`", section) if _EVENT.fullmatch(word)}


@pytest.fixture(scope="module")
def events() -> list[Logged]:
    return list(logged(sources()))


def test_each_event_has_a_name_of_the_same_form(events: list[Logged]) -> None:
    assert len({each.event for each in events}) > 50
    assert [each for each in events if not _EVENT.fullmatch(each.event)] == []


def test_each_event_is_listed_in_the_readme_of_its_folder(events: list[Logged]) -> None:
    missing = [
        f"{each.event} ({each.file.relative_to(ROOT)}:{each.line}) is not in {readme.relative_to(ROOT)}"
        for each in events
        for readme in readmes(each.file)
        if each.event not in listed(readme)
    ]

    assert missing == []


def test_each_event_that_a_readme_lists_is_logged_there(events: list[Logged]) -> None:
    known: dict[Path, set[str]] = {}
    for each in events:
        for readme in readmes(each.file):
            known.setdefault(readme, set()).add(each.event)

    stale = {
        (str(readme.relative_to(ROOT)), event)
        for readme, logged_there in known.items()
        for event in listed(readme) - logged_there
        if "." in event  # the rest are other words, as names of backends
    }

    assert stale == set()


def test_no_field_has_the_name_of_one_that_each_line_has(events: list[Logged]) -> None:
    own = {*vars(logging.makeLogRecord({})), "message", "asctime", "event", "level"}

    assert [each for each in events if own.intersection(each.fields)] == []


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("log.info('a.b')", {"a.b"}),
        ("log.warning(f'{verb.value}.done')", {"snapshot.done", "restore.done", "discard.done"}),
        ("def say(self, event):\n    log.info(event)\nself.say('c.d')\nsay('e.f')", {"c.d", "e.f"}),
        ("def note(event, key):\n    out(Note(event, key))\nstate.note('g.h', 1)", {"g.h"}),
    ],
)
def test_events_are_found_however_they_are_logged(tmp_path: Path, text: str, events: set[str]) -> None:
    file = tmp_path / "module.py"
    file.write_text(text)

    assert {each.event for each in logged([file])} == events


@pytest.mark.parametrize("text", ["log.info(f'{name}.done')", "log.info('a' + b)", "log.info(other)"])
def test_an_event_that_cannot_be_read_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(text)

    with pytest.raises(Unclear, match=r"module\.py:1: "):
        list(logged([file]))


def test_fields_are_found_with_their_event(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("log.info('a.b', extra={'job': 1, 'node': 2, **more})")

    assert list(logged([file])) == [Logged("a.b", file, 1, ("job", "node"))]
