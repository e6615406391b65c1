"""Columns as data: what a column is, and sacct's language to choose them (`JobID,State%-12`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from slurm_interleave.client.cli import times
from slurm_interleave.client.core.errors import BadArgument
from slurm_interleave.client.core.near import hint

Item = TypeVar("Item")
_FIELD = re.compile(r"(?P<name>[^%]+)(%(?P<width>-?[1-9]\d{0,3}))?")
_UNITS = ("", "K", "M", "G", "T", "P")


@dataclass(frozen=True)
class Kind:
    """How a value is shown: in a table for people, in parsable output and in JSON for programs."""

    table: Callable[[Any], str]
    parsable: Callable[[Any], str]
    json: Callable[[Any], Any]
    right: bool = True
    elastic: bool = False  # may be cut where the table is wider than the terminal


@dataclass(frozen=True)
class Column(Generic[Item]):
    """One column; help, headings, JSON keys and `--format` all read it."""

    name: str
    help: str
    kind: Kind
    value: Callable[[Item], Any]


@dataclass(frozen=True)
class Field(Generic[Item]):
    """A chosen column, with the width that the user gave (None: as wide as what is in it)."""

    column: Column[Item]
    width: int | None = None
    right: bool = True


def shown(text: str) -> str:
    """Return *text* without characters that would break a line or drive a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


def seconds(value: float) -> str:
    """Return seconds with four significant digits: 0.004, 12.35, 1234."""
    decimals = 3 - sum(value >= limit for limit in (9.9995, 99.995, 999.95))
    return f"{value:.{decimals}f}"


def bytes_text(value: int) -> str:
    """Return a number of bytes as sacct shows memory: 512, 1.50G."""
    size, unit = float(value), 0
    while size >= 1023.995 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.2f}{_UNITS[unit]}" if unit else str(value)


def bytes_in(unit: str) -> Kind:
    """Return the kind of a number of bytes that is always told in *unit*: K, M, G, T or P."""
    size = 1024 ** _UNITS.index(unit)
    return Kind(lambda value: f"{value / size:.2f}{unit}", lambda value: f"{value / size:.2f}{unit}", int)


def _hours(value: float, digits: int) -> float:
    return round(value / 3600, digits) + 0.0  # what is added makes a negative zero a plain one


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}%"


def _joined(values: Sequence[str]) -> str:
    return ",".join(shown(value) for value in values)


TEXT = Kind(shown, shown, str, right=False, elastic=True)
WORD = Kind(shown, shown, str, right=False)
RIGHT_TEXT = Kind(shown, shown, str)
LIST = Kind(_joined, _joined, list, right=False, elastic=True)
COUNT = Kind(str, str, int)
BYTES = Kind(bytes_text, str, int)
SECONDS = Kind(seconds, lambda value: f"{value:.3f}", lambda value: round(value, 3))
MAYBE_SECONDS = Kind(
    lambda value: "" if value is None else seconds(value),
    lambda value: "" if value is None else f"{value:.3f}",
    lambda value: None if value is None else round(value, 3),
)
HOURS = Kind(
    lambda value: f"{_hours(value, 3):.3f}",
    lambda value: f"{_hours(value, 6):.6f}",
    lambda value: _hours(value, 6),
)
PERCENT = Kind(_percent, _percent, lambda value: None if value is None else round(100 * value, 2))
TIME = Kind(
    times.time_text,
    times.time_text,
    lambda value: None if value is None else round(value, 3),
)
DURATION = Kind(times.duration_text, times.duration_text, lambda value: round(value, 3))


def by_name(columns: Iterable[Column[Item]]) -> dict[str, Column[Item]]:
    """Return *columns* by their names in small letters."""
    return {column.name.lower(): column for column in columns}


def parse_format(text: str, columns: Mapping[str, Column[Item]]) -> list[Field[Item]]:
    """Return the fields that *text* names. Raises `BadArgument` with the nearest name that there is."""
    words = [word.strip() for word in text.split(",")]
    return [_parse_field(word, columns) for word in words if word] or _nothing_chosen()


def _parse_field(word: str, columns: Mapping[str, Column[Item]]) -> Field[Item]:
    match = _FIELD.fullmatch(word)
    if match is None:
        raise BadArgument(
            f"field {word!r} cannot be read; write NAME or NAME%WIDTH, "
            "with a width of 1 to 9999, negative to align left"
        )
    column = columns.get(match["name"].lower())
    if column is None:
        raise BadArgument(f"no field {match['name']!r}{_nearest(match['name'], columns)}")
    if match["width"] is None:
        return Field(column, None, column.kind.right)
    width = int(match["width"])
    return Field(column, abs(width), width > 0)


def _nearest(word: str, columns: Mapping[str, Column[Item]]) -> str:
    return hint(word, [column.name for column in columns.values()]) or "; --helpformat lists all"


def _nothing_chosen() -> list[Any]:
    raise BadArgument("the format names no field; see --helpformat")
