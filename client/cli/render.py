"""Renderers: functions of fields and items. A table for people, separated values and JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

from slurm_interleave.client.cli.fields import Field

Item = TypeVar("Item")
_NARROW = 6  # a text column is not cut below this


def table(
    fields: Sequence[Field[Item]], items: Iterable[Item], *, heading: bool = True, limit: int | None = None
) -> Iterator[str]:
    """Yield the lines of a table as sacct draws it; what is cut ends in `+`.

    Columns are as wide as what is in them, unless the user gave a width. Where the whole is wider than
    *limit*, text columns are cut, the widest first. Where all widths are given, no item is kept.
    """
    cells: Iterable[list[str]] = (
        [field.column.kind.table(field.column.value(item)) for field in fields] for item in items
    )
    widths = [field.width for field in fields if field.width is not None]
    if len(widths) < len(fields):
        cells = list(cells)
        widths = _fit(fields, _widths(fields, cells), limit)
    if heading:
        yield _line([field.column.name for field in fields], fields, widths)
        yield " ".join("-" * width for width in widths)
    for row in cells:
        yield _line(row, fields, widths)


def parsable(
    fields: Sequence[Field[Item]],
    items: Iterable[Item],
    *,
    heading: bool = True,
    delimiter: str = "|",
    trailing: bool = False,
) -> Iterator[str]:
    """Yield lines of values with *delimiter* between them, and after the last one if *trailing*."""
    end = delimiter if trailing else ""
    if heading:
        yield delimiter.join(field.column.name for field in fields) + end
    cells = [_parsable_cell(field) for field in fields]
    for item in items:
        yield delimiter.join([cell(item) for cell in cells]) + end


def as_json(name: str, fields: Sequence[Field[Item]], items: Iterable[Item]) -> str:
    """Return `{name: [...]}` with one object for each item, its keys the names of the columns."""
    return json.dumps({name: _objects(fields, items)}, indent=2)


def as_yaml(name: str, fields: Sequence[Field[Item]], items: Iterable[Item]) -> Iterator[str]:
    """Yield the lines of the same in YAML, whose scalars and lists in one line are those of JSON."""
    objects = _objects(fields, items)
    yield f"{name}:" if objects else f"{name}: []"
    for values in objects:
        for i, (key, value) in enumerate(values.items()):
            yield f"{'  ' if i else '- '}{key}: {json.dumps(value)}"


def as_csv(fields: Sequence[Field[Item]], items: Iterable[Item], *, heading: bool = True) -> Iterator[str]:
    """Yield lines of values as RFC 4180 has them, quoted where they must be."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="").writerow
    values = [_parsable_cell(field) for field in fields]
    given = ([value(item) for value in values] for item in items)
    for cells in chain([[field.column.name for field in fields]] if heading else [], given):
        write(cells)
        yield out.getvalue()
        out.seek(0)
        out.truncate()


def _objects(fields: Sequence[Field[Item]], items: Iterable[Item]) -> list[dict[str, Any]]:
    return [
        {field.column.name: field.column.kind.json(field.column.value(item)) for field in fields}
        for item in items
    ]


def terminal_width() -> int | None:
    """Return the width of the terminal, or None where the output goes elsewhere and nothing need be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _parsable_cell(field: Field[Item]) -> Callable[[Item], str]:
    """Return what gives the text of *field* for an item."""
    value, text, width = field.column.value, field.column.kind.parsable, field.width
    if width is None:
        return lambda item: text(value(item))
    return lambda item: text(value(item))[:width]


def _widths(fields: Sequence[Field[Any]], cells: Sequence[Sequence[str]]) -> list[int]:
    natural = [
        max(len(field.column.name), *(len(row[i]) for row in cells)) if cells else len(field.column.name)
        for i, field in enumerate(fields)
    ]
    return [field.width or width for field, width in zip(fields, natural, strict=True)]


def _fit(fields: Sequence[Field[Any]], widths: Sequence[int], limit: int | None) -> list[int]:
    fitted = list(widths)
    elastic = [i for i, field in enumerate(fields) if field.width is None and field.column.kind.elastic]
    while limit is not None and sum(fitted) + len(fitted) - 1 > limit:
        widest = max(elastic, key=lambda i: fitted[i], default=None)
        if widest is None or fitted[widest] <= _NARROW:
            break
        fitted[widest] -= 1
    return fitted


def _line(cells: Sequence[str], fields: Sequence[Field[Any]], widths: Sequence[int]) -> str:
    parts = []
    for cell, field, width in zip(cells, fields, widths, strict=True):
        text = cell if len(cell) <= width else cell[: width - 1] + "+"
        parts.append(text.rjust(width) if field.right else text.ljust(width))
    return " ".join(parts).rstrip()
