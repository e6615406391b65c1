"""The schema, one table a kind of row of `rows`. Migrations make it; a test compares the two.

The columns of a table stand in the order of the fields of its row. How a table is stored (engine, collation,
with or without row ids) is the migrations' alone: to name it here loads the dialects of all databases.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import sqlalchemy as sa

from slurm_interleave.client.core.states import Context, SliceState
from slurm_interleave.sql import rows

metadata = sa.MetaData()


class Label(sa.TypeDecorator[Any]):
    """Text that users choose, no key: cut to *length*, without the NUL that PostgreSQL refuses."""

    impl = sa.String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        """Make it fit."""
        return str(value)[: self.length].replace("\0", "\ufffd")


class Long(sa.TypeDecorator[Any]):
    """The same of any length; MariaDB's TEXT ends at 64 KiB."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        """Return the widest type of text of *dialect*."""
        if dialect.name == "mariadb":
            from sqlalchemy.dialects import mysql  # a tenth of a daemon's start

            return dialect.type_descriptor(mysql.MEDIUMTEXT())
        return super().load_dialect_impl(dialect)

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        """Make it fit."""
        return str(value).replace("\0", "\ufffd")


class Words(Long):
    """A tuple of words as text, separated by commas, which no name of ours contains."""

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
    sa.Column("role", Label(128), nullable=False),
    sa.Column("uid", sa.BigInteger, nullable=False),
    sa.Column("user", Label(128), nullable=False),
    sa.Column("account", Label(128), nullable=False),
    sa.Column("partition", Label(128), nullable=False),
    sa.Column("name", Label(255), nullable=False),
    sa.Column("backend", Label(128), nullable=False),
    sa.Column("nodes", Words, nullable=False),
    sa.Column("fault", Long, nullable=False),
    sa.Column("over", sa.Boolean, nullable=False),
    sa.Column("profile", Label(128), nullable=False),
    sa.Column("max_slowdown", sa.BigInteger, nullable=False),
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
    sa.Column("restarts", sa.BigInteger, nullable=False),
    sa.Column("started", sa.Double, nullable=False),
)

waiters = sa.Table(
    "waiters",
    metadata,
    sa.Column("job_id", name(), primary_key=True),
    sa.Column("group", name(), primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("phase", Label(255), nullable=False),
    sa.Column("requested", sa.Double, nullable=False),
    sa.Column("also", Words, nullable=False),
    sa.Column("told", sa.BigInteger, nullable=False),
    sa.Column("independent", sa.Boolean, nullable=False),
    sa.Column("driver", name(), nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("job_id", name(), primary_key=True),
    sa.Column("group", name(), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("phase", Label(255), nullable=False),
    sa.Column("requested", sa.Double, nullable=False),
    sa.Column("granted", sa.Double, nullable=False),
    sa.Column("switched", sa.Boolean, nullable=False),
    sa.Column("restored", sa.Boolean, nullable=False),
    sa.Column("switch_s", sa.Double, nullable=False),
    sa.Column("snapshot_s", sa.Double, nullable=False),
    sa.Column("restore_s", sa.Double, nullable=False),
    sa.Column("switch_bytes", sa.BigInteger, nullable=False),
    sa.Column("told", sa.BigInteger, nullable=False),
    sa.Column("heard_by", name(), nullable=False),
    sa.Column("alone", sa.Boolean, nullable=False),
    sa.Column("driver", name(), nullable=False),
)


def _whose() -> list[sa.Column[Any]]:
    """Return the columns that say whose a turn is, or whose sums of a day."""
    return [
        sa.Column("role", Label(128), nullable=False),
        sa.Column("uid", sa.BigInteger, nullable=False),
        sa.Column("user", Label(128), nullable=False),
        sa.Column("account", Label(128), nullable=False),
        sa.Column("partition", Label(128), nullable=False),
        sa.Column("name", Label(255), nullable=False),
        sa.Column("backend", Label(128), nullable=False),
        sa.Column("nodes", Words, nullable=False),
        sa.Column("devices", Words, nullable=False),
        sa.Column("phase", Label(255), nullable=False),
        sa.Column("state", State(SliceState), nullable=False),
    ]


slices = sa.Table(
    "slices",
    metadata,
    sa.Column(
        "epoch", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False
    ),
    sa.Column("job_id", name(), nullable=False),
    sa.Column("group", name(), nullable=False),
    *_whose(),
    sa.Column("requested", sa.Double, nullable=False),
    sa.Column("granted", sa.Double, nullable=False),
    sa.Column("ended", sa.Double, nullable=False),
    sa.Column("switched", sa.Boolean, nullable=False),
    sa.Column("switch_s", sa.Double, nullable=False),
    sa.Column("snapshot_s", sa.Double, nullable=False),
    sa.Column("restore_s", sa.Double, nullable=False),
    sa.Column("switch_bytes", sa.BigInteger, nullable=False),
    sa.Column("off_s", sa.Double, nullable=False),
    sa.Column("share", sa.Double, nullable=False),
    sa.Column("partners", Words, nullable=False),
    sa.Column("comment", Label(255), nullable=False),
    sa.Column("profile", Label(128), nullable=False),
    sa.Column("expected_s", sa.Double, nullable=False),
    # Each report pages along one of these; the first also finds what a job yielded last.
    sa.Index("slices_by_job", "job_id", "epoch"),
    sa.Index("slices_by_group", "group", "ended", "epoch"),
    sa.Index("slices_by_user", "user", "ended", "epoch"),
    sa.Index("slices_by_end", "ended", "epoch"),
)

days = sa.Table(
    "days",
    metadata,
    sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("job_id", name(), primary_key=True),
    sa.Column("group", name(), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    *_whose(),
    sa.Column("partners", Words, nullable=False),
    sa.Column("comment", Label(255), nullable=False),
    sa.Column("requested", sa.Double, nullable=False),
    sa.Column("granted", sa.Double, nullable=False),
    sa.Column("ended", sa.Double, nullable=False),
    sa.Column("turns", sa.BigInteger, nullable=False),
    sa.Column("switches", sa.BigInteger, nullable=False),
    sa.Column("faults", sa.BigInteger, nullable=False),
    sa.Column("held_s", sa.Double, nullable=False),
    sa.Column("waited_s", sa.Double, nullable=False),
    sa.Column("max_wait_s", sa.Double, nullable=False),
    sa.Column("switch_s", sa.Double, nullable=False),
    sa.Column("snapshot_s", sa.Double, nullable=False),
    sa.Column("restore_s", sa.Double, nullable=False),
    sa.Column("overhead_s", sa.Double, nullable=False),
    sa.Column("switch_bytes", sa.Double, nullable=False),  # whose sum has no end
    sa.Column("held_device_s", sa.Double, nullable=False),
    sa.Column("waited_device_s", sa.Double, nullable=False),
    sa.Column("exclusive_device_s", sa.Double, nullable=False),
    sa.Column("occupied_device_s", sa.Double, nullable=False),
    sa.Column("foretold", sa.BigInteger, nullable=False),
    sa.Column("expected_s", sa.Double, nullable=False),
    sa.Column("missed_s", sa.Double, nullable=False),
    sa.Index("days_by_job", "job_id"),
)

reservations = sa.Table(
    "reservations",
    metadata,
    sa.Column("job_id", name(), primary_key=True),
    sa.Column("group", name(), nullable=False),
    sa.Column("role", Label(128), nullable=False),
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
