"""The name under which a job's workload is learned, and how much slower it may become."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_NAME = sa.String(128)


def upgrade() -> None:
    again = op.get_bind().dialect.name == "mariadb"  # whose DDL is in no transaction; see 0001
    for table in ("members", "slices"):
        name = sa.Column("profile", _NAME, nullable=False, server_default="")
        op.add_column(table, name, if_not_exists=again)
    slower = sa.Column("max_slowdown", sa.BigInteger(), nullable=False, server_default="-1")
    op.add_column("members", slower, if_not_exists=again)


def downgrade() -> None:
    op.drop_column("members", "max_slowdown")
    op.drop_column("slices", "profile")
    op.drop_column("members", "profile")
