"""Looks whether a database is as this release needs it, and whether its rows agree with each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from slurm_interleave.sql import migrate, rows
from slurm_interleave.sql.tables import TABLES, instance, metadata, slices


def problems(engine: sa.Engine) -> list[str]:
    """Return what is wrong, in words; an empty list is a good sign. Reads one moment, changes nothing."""
    if engine.dialect.name != "sqlite":  # there, each transaction sees one moment
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as db:
        found = migrate.revision(db)
        if found != migrate.HEAD:
            have = f"is at revision {found}" if found else "has no tables of slurm-interleave"
            return [f"the database {have}; this release needs {migrate.HEAD}: run interleave db upgrade"]
        schema = [*_differences(db), *_physical(db)]
        return schema or list(_contradictions(db))


def _differences(db: sa.Connection) -> Iterator[str]:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    for difference in compare_metadata(MigrationContext.configure(db), metadata):
        for change in difference if isinstance(difference, list) else [difference]:
            parts = (part for part in change if part is not None and not isinstance(part, dict))
            yield f"the schema differs: to {' '.join(map(_word, parts))}"
    if db.dialect.name == "mariadb":
        tables = sa.table("tables", *map(sa.column, _COLLATION), schema="information_schema")
        here = sa.select(tables.c.table_name, tables.c.table_collation).where(
            tables.c.table_schema == sa.func.database(), tables.c.table_name.in_(metadata.tables)
        )
        for table, collation in db.execute(here):
            if collation != _EXACT:
                yield f"table {table} has collation {collation}, which mixes names up; it must have {_EXACT}"


# MariaDB compares text as the site's collation does, often without regard to case or trailing spaces.
_EXACT = "utf8mb4_nopad_bin"
_COLLATION = ("table_schema", "table_name", "table_collation")


def _word(part: Any) -> str:
    if isinstance(part, sa.Column) and part.table is not None:
        return f"{part.table.name}.{part.name}"
    return str(getattr(part, "name", None) or part).replace("_", " ")


def _physical(db: sa.Connection) -> Iterator[str]:
    if db.dialect.name == "sqlite":
        for (line,) in db.exec_driver_sql("PRAGMA quick_check(10)"):
            if line != "ok":
                yield f"the file is damaged: {line}; stop interleaved and restore a backup"


@dataclass(frozen=True)
class _Book:
    """All rows but the slices, which may be millions."""

    members: dict[rows.Key, rows.Member]
    parts: list[rows.Part]
    waiters: dict[rows.Key, rows.Waiter]
    leases: dict[rows.Key, rows.Lease]


def _contradictions(db: sa.Connection) -> Iterator[str]:
    book = _Book(
        members={_key(row): row for row in _all(db, rows.Member)},
        parts=_all(db, rows.Part),
        waiters={_key(row): row for row in _all(db, rows.Waiter)},
        leases={_key(row): row for row in _all(db, rows.Lease)},
    )
    yield from _orphans(book)
    yield from _doubles(book)
    yield from _epochs(db, book)


def _orphans(book: _Book) -> Iterator[str]:
    for what, keys in (("waiter", book.waiters), ("lease", book.leases), ("part", map(_key, book.parts))):
        for key in keys:
            if key not in book.members:
                yield f"{key}: a {what} without its member"
    for key in book.waiters.keys() & book.leases.keys():
        yield f"{key}: it waits for what it holds"


def _doubles(book: _Book) -> Iterator[str]:
    holders: dict[tuple[str, int], list[rows.Key]] = defaultdict(list)
    for part in book.parts:
        if _key(part) in book.leases:
            for index in part.devices:
                holders[part.node, index].append(_key(part))
    for (node, index), keys in sorted(holders.items()):
        if len(keys) > 1:
            yield f"device {node}/{index}: held by {' and '.join(map(str, keys))}"


def _epochs(db: sa.Connection, book: _Book) -> Iterator[str]:
    known = db.scalars(sa.select(instance.c.epoch)).all()
    if len(known) != 1:
        yield f"table instance has {len(known)} rows and must have one"
        return
    newest = int(db.scalar(sa.select(sa.func.max(slices.c.epoch))) or 0)
    if newest > known[0]:
        yield f"slice {newest} is newer than the newest grant, {known[0]}"
    taken: dict[int, rows.Key] = {}
    for key, lease in book.leases.items():
        if lease.epoch > known[0]:
            yield f"{key}: its lease, {lease.epoch}, is newer than the newest grant, {known[0]}"
        if lease.epoch in taken:
            yield f"{key}: its lease has the epoch of {taken[lease.epoch]}, {lease.epoch}"
        taken[lease.epoch] = key
        if db.scalar(sa.select(slices.c.epoch).where(slices.c.epoch == lease.epoch)) is not None:
            yield f"{key}: its lease, {lease.epoch}, has ended already"


def _all(db: sa.Connection, kind: Any) -> list[Any]:
    columns = [TABLES[kind].c[field.name] for field in fields(kind)]
    return [kind(*found) for found in db.execute(sa.select(*columns))]


def _key(row: Any) -> rows.Key:
    return rows.Key(row.job_id, row.group)
