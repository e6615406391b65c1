"""Which acquire was told of a lease."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    again = op.get_bind().dialect.name == "mariadb"  # whose DDL is in no transaction; see 0001
    for column in (
        sa.Column("heard_by", sa.String(128), nullable=False, server_default=""),
        sa.Column("alone", sa.Boolean(), nullable=False, server_default=sa.false()),
    ):
        op.add_column("leases", column, if_not_exists=again)


def downgrade() -> None:
    op.drop_column("leases", "alone")
    op.drop_column("leases", "heard_by")
