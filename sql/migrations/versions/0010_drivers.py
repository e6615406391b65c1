"""Which component of a heterogeneous job asks for the devices of another."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TABLES = ("waiters", "leases")


def upgrade() -> None:
    again = op.get_bind().dialect.name == "mariadb"  # whose DDL is in no transaction; see 0001
    for table in TABLES:
        column = sa.Column("driver", sa.String(128), nullable=False, server_default="")
        op.add_column(table, column, if_not_exists=again)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_column(table, "driver")
