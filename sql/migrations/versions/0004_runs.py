"""Which run of its job an attempt belongs to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    again = op.get_bind().dialect.name == "mariadb"  # whose DDL is in no transaction; see 0001
    for table, column in (
        ("parts", sa.Column("restarts", sa.BigInteger(), nullable=False, server_default="-1")),
        ("parts", sa.Column("started", sa.Double(), nullable=False, server_default="0")),
    ):
        op.add_column(table, column, if_not_exists=again)


def downgrade() -> None:
    op.drop_column("parts", "started")
    op.drop_column("parts", "restarts")
