"""How long a turn was told at first to wait, and by how much that missed."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

COLUMNS: tuple[tuple[str, str, sa.types.TypeEngine[Any], str], ...] = (
    ("slices", "expected_s", sa.Double(), "-1"),
    ("days", "foretold", sa.BigInteger(), "0"),
    ("days", "expected_s", sa.Double(), "0"),
    ("days", "missed_s", sa.Double(), "0"),
)


def upgrade() -> None:
    again = op.get_bind().dialect.name == "mariadb"  # whose DDL is in no transaction; see 0001
    for table, name, kind, default in COLUMNS:
        column = sa.Column(name, kind, nullable=False, server_default=default)
        op.add_column(table, column, if_not_exists=again)


def downgrade() -> None:
    for table, name, _, _ in reversed(COLUMNS):
        op.drop_column(table, name)
