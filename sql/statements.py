"""What is written, compiled once from the schema, so that a write costs a driver's call and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from slurm_interleave.sql import rows
from slurm_interleave.sql.tables import TABLES, instance

RowType = TypeVar("RowType", bound=rows.Row)


def all_rows(db: sa.Connection, kind: type[RowType]) -> list[RowType]:
    """Return all rows of a kind."""
    columns = [TABLES[kind].c[field.name] for field in fields(kind)]
    return [kind(*found) for found in db.execute(sa.select(*columns)).all()]


Change = Callable[["sa.Column[Any]", "sa.ColumnElement[Any]"], "sa.ColumnElement[Any]"]


class Statement(NamedTuple):
    """A statement in the driver's words, and its values."""

    sql: str
    values: Sequence[Any]


class Fence:
    """Moves the epoch on if the caller is still the newest instance and knows the last epoch."""

    def __init__(self, dialect: sa.Dialect) -> None:
        moved = (
            sa.update(instance)
            .where(
                instance.c.generation == sa.bindparam("generation"),
                instance.c.epoch == sa.bindparam("before"),
            )
            .values(epoch=sa.bindparam("after"))
        )
        self._sql, self._names = _compile(moved, dialect)

    def statement(self, generation: int, before: int, after: int) -> Statement:
        """Return the statement; it counts one row, or the caller must stop."""
        given = {"generation": generation, "before": before, "after": after}
        return Statement(self._sql, [given[name] for name in self._names])


class TableStatements:
    """How a row of one table is put, and how it is forgotten."""

    def __init__(self, table: sa.Table, dialect: sa.Dialect, change: Change | None = None) -> None:
        """*change*: what a column becomes where there is a row with the key; else as given."""
        self._put, names = _compile(_upsert(table, dialect, change or _as_given), dialect)
        keys = list(table.primary_key.columns)
        same = (column == sa.bindparam(f"key_{i}") for i, column in enumerate(keys))
        self._drop, order = _compile(sa.delete(table).where(*same), dialect)
        self._order = [int(name.removeprefix("key_")) for name in order]
        self._values = attrgetter(*names)
        self._converters = [
            (i, convert) for i, name in enumerate(names) if (convert := _converter(table.c[name], dialect))
        ]

    def put(self, row: object) -> Statement:
        """Return the statement that writes *row*, or changes an earlier one with its key."""
        values = list(self._values(row))
        for i, convert in self._converters:
            values[i] = convert(values[i])
        return Statement(self._put, values)

    def drop(self, key: Sequence[Any]) -> Statement:
        """Return the statement that forgets the row of *key*."""
        return Statement(self._drop, [key[i] for i in self._order])


def _compile(construct: sa.ClauseElement, dialect: sa.Dialect) -> tuple[str, list[str]]:
    """Return the text of *construct* and the names of its values, in their order."""
    compiled: Any = construct.compile(dialect=dialect)
    return str(compiled), list(compiled.positiontup)


def _as_given(_: sa.Column[Any], given: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    return given


def _upsert(table: sa.Table, dialect: sa.Dialect, change: Change) -> sa.ClauseElement:
    keys = list(table.primary_key.columns)
    rest = [column for column in table.columns if not column.primary_key]
    insert = _insert(dialect)(table)
    if dialect.name == "mariadb":
        changes = {c.name: change(c, insert.inserted[c.name]) for c in rest}
        put: sa.ClauseElement = insert.on_duplicate_key_update(changes)
    else:
        changes = {c.name: change(c, insert.excluded[c.name]) for c in rest}
        put = insert.on_conflict_do_update(index_elements=keys, set_=changes)
    return put


def _insert(dialect: sa.Dialect) -> Any:
    """Return the INSERT of *dialect* that can change rows. To import all three takes a fifth of a start."""
    if dialect.name == "mariadb":
        from sqlalchemy.dialects.mysql import insert as mariadb

        return mariadb
    if dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql

        return postgresql
    from sqlalchemy.dialects.sqlite import insert as sqlite

    return sqlite


def _converter(column: sa.Column[Any], dialect: sa.Dialect) -> Callable[[Any], Any] | None:
    """Return what turns a value of a row into one for the driver, where it is not the same."""
    if not isinstance(column.type, sa.TypeDecorator):
        return None
    return column.type.bind_processor(dialect)
