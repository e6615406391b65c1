"""Several groups in one acquire, and leases that a rule takes and gives back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("waiters", sa.Column("also", sa.Text(), nullable=False, server_default=""))
    op.add_column("waiters", sa.Column("told", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("leases", sa.Column("told", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("leases", "told")
    op.drop_column("waiters", "told")
    op.drop_column("waiters", "also")
