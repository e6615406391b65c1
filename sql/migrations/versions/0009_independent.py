"""Which acquire does not keep the other leases of its job."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    again = op.get_bind().dialect.name == "mariadb"  # whose DDL is in no transaction; see 0001
    column: sa.Column[bool] = sa.Column(
        "independent", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("waiters", column, if_not_exists=again)


def downgrade() -> None:
    op.drop_column("waiters", "independent")
