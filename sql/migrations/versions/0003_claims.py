"""Several groups in one acquire, and leases that a rule takes and gives back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

LONG = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def upgrade() -> None:
    again = op.get_bind().dialect.name == "mariadb"  # whose DDL is in no transaction; see 0001
    for table, column in (
        ("waiters", sa.Column("also", LONG, nullable=False, server_default="")),
        ("waiters", sa.Column("told", sa.BigInteger(), nullable=False, server_default="0")),
        ("leases", sa.Column("told", sa.BigInteger(), nullable=False, server_default="0")),
    ):
        op.add_column(table, column, if_not_exists=again)


def downgrade() -> None:
    op.drop_column("leases", "told")
    op.drop_column("waiters", "told")
    op.drop_column("waiters", "also")
