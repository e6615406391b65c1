"""The schema, one table a kind of row of `rows`. Migrations make it; a test compares the two."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

import sqlalchemy as sa

from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.sql import rows

metadata = sa.MetaData()


class Words(sa.TypeDecorator[tuple[str, ...]]):
    """A tuple of words as text, separated by commas, which no name of ours contains."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        """Tuple to text."""
        return ",".join(map(str, value or ()))

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> tuple[Any, ...]:
        """Text to tuple."""
        return tuple(value.split(",")) if value else ()


class Numbers(Words):
    """The same for a tuple of whole numbers."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> tuple[Any, ...]:
        """Text to tuple."""
        return tuple(map(int, value.split(","))) if value else ()


class State(sa.TypeDecorator[Enum]):
    """A state as its word."""

    impl = sa.String(16)
    cache_ok = True

    def __init__(self, enum: type[Enum]) -> None:
        super().__init__()
        self.enum = enum

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        """Member to word."""
        return str(value.value)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Enum:
        """Word to member."""
        return self.enum(value)


def name() -> sa.String:
    """Return the type of a name."""
    return sa.String(128)


instance = sa.Table(
    "instance",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("generation", sa.BigInteger, nullable=False),  # one more with each start: the newest may write
    sa.Column("epoch", sa.BigInteger, nullable=False),  # of the newest grant
)

members = sa.Table(
    "members",
    metadata,
    sa.Column("job_id", name(), primary_key=True),
    sa.Column("group", name(), primary_key=True),
    sa.Column("role", name(), nullable=False),
    sa.Column("uid", sa.BigInteger, nullable=False),
    sa.Column("user", name(), nullable=False),
    sa.Column("account", name(), nullable=False),
    sa.Column("partition", name(), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("backend", name(), nullable=False),
    sa.Column("nodes", Words, nullable=False),
    sa.Column("fault", sa.Text, nullable=False),
    sa.Column("over", sa.Boolean, nullable=False),
)

parts = sa.Table(
    "parts",
    metadata,
    sa.Column("job_id", name(), primary_key=True),
    sa.Column("group", name(), primary_key=True),
    sa.Column("node", name(), primary_key=True),
    sa.Column("attempt", name(), nullable=False),
    sa.Column("devices", Numbers, nullable=False),
    sa.Column("context", State(Context), nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("operation", name(), nullable=False),
    sa.Column("token_sha256", sa.String(64), nullable=False),
)

waiters = sa.Table(
    "waiters",
    metadata,
    sa.Column("job_id", name(), primary_key=True),
    sa.Column("group", name(), primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("phase", sa.String(255), nullable=False),
    sa.Column("requested", sa.Double, nullable=False),
    sa.Column("also", Words, nullable=False),
    sa.Column("told", sa.BigInteger, nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("job_id", name(), primary_key=True),
    sa.Column("group", name(), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False, unique=True),
    sa.Column("phase", sa.String(255), nullable=False),
    sa.Column("requested", sa.Double, nullable=False),
    sa.Column("granted", sa.Double, nullable=False),
    sa.Column("switched", sa.Boolean, nullable=False),
    sa.Column("restored", sa.Boolean, nullable=False),
    sa.Column("switch_s", sa.Double, nullable=False),
    sa.Column("snapshot_s", sa.Double, nullable=False),
    sa.Column("restore_s", sa.Double, nullable=False),
    sa.Column("switch_bytes", sa.BigInteger, nullable=False),
    sa.Column("told", sa.BigInteger, nullable=False),
)

slices = sa.Table(
    "slices",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("job_id", name(), nullable=False, index=True),
    sa.Column("group", name(), nullable=False, index=True),
    sa.Column("role", name(), nullable=False),
    sa.Column("uid", sa.BigInteger, nullable=False),
    sa.Column("user", name(), nullable=False, index=True),
    sa.Column("account", name(), nullable=False),
    sa.Column("partition", name(), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("backend", name(), nullable=False),
    sa.Column("nodes", Words, nullable=False),
    sa.Column("devices", Words, nullable=False),
    sa.Column("phase", sa.String(255), nullable=False),
    sa.Column("state", State(SliceState), nullable=False),
    sa.Column("requested", sa.Double, nullable=False),
    sa.Column("granted", sa.Double, nullable=False),
    sa.Column("ended", sa.Double, nullable=False, index=True),
    sa.Column("switched", sa.Boolean, nullable=False),
    sa.Column("switch_s", sa.Double, nullable=False),
    sa.Column("snapshot_s", sa.Double, nullable=False),
    sa.Column("restore_s", sa.Double, nullable=False),
    sa.Column("switch_bytes", sa.BigInteger, nullable=False),
)

reservations = sa.Table(
    "reservations",
    metadata,
    sa.Column("job_id", name(), primary_key=True),
    sa.Column("group", name(), nullable=False),
    sa.Column("role", name(), nullable=False),
    sa.Column("nodes", Words, nullable=False),
    sa.Column("devices", Numbers, nullable=False),
    sa.Column("lane", name(), nullable=False),
)

TABLES: dict[type[Any], sa.Table] = {
    rows.Member: members,
    rows.Part: parts,
    rows.Waiter: waiters,
    rows.Lease: leases,
    rows.Slice: slices,
    rows.Reservation: reservations,
}


def values(row: rows.Row) -> dict[str, Any]:
    """Return *row* as column values."""
    return {field.name: getattr(row, field.name) for field in fields(row)}
