"""First schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "instance",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "leases",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(length=255), nullable=False),
        sa.Column("requested", sa.Double(), nullable=False),
        sa.Column("granted", sa.Double(), nullable=False),
        sa.Column("switched", sa.Boolean(), nullable=False),
        sa.Column("restored", sa.Boolean(), nullable=False),
        sa.Column("switch_s", sa.Double(), nullable=False),
        sa.Column("snapshot_s", sa.Double(), nullable=False),
        sa.Column("restore_s", sa.Double(), nullable=False),
        sa.Column("switch_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "group"),
        sa.UniqueConstraint("epoch"),
    )
    op.create_table(
        "members",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=128), nullable=False),
        sa.Column("uid", sa.BigInteger(), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("account", sa.String(length=128), nullable=False),
        sa.Column("partition", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("backend", sa.String(length=128), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("fault", sa.Text(), nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "group"),
    )
    op.create_table(
        "parts",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.String(length=128), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("context", sa.String(length=16), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("operation", sa.String(length=128), nullable=False),
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "group", "node"),
    )
    op.create_table(
        "reservations",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=128), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("lane", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "slices",
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=128), nullable=False),
        sa.Column("uid", sa.BigInteger(), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("account", sa.String(length=128), nullable=False),
        sa.Column("partition", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("backend", sa.String(length=128), nullable=False),
        sa.Column("nodes", sa.Text(), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("requested", sa.Double(), nullable=False),
        sa.Column("granted", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=False),
        sa.Column("switched", sa.Boolean(), nullable=False),
        sa.Column("switch_s", sa.Double(), nullable=False),
        sa.Column("snapshot_s", sa.Double(), nullable=False),
        sa.Column("restore_s", sa.Double(), nullable=False),
        sa.Column("switch_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("epoch"),
    )
    op.create_index(op.f("ix_slices_ended"), "slices", ["ended"], unique=False)
    op.create_index(op.f("ix_slices_group"), "slices", ["group"], unique=False)
    op.create_index(op.f("ix_slices_job_id"), "slices", ["job_id"], unique=False)
    op.create_index(op.f("ix_slices_user"), "slices", ["user"], unique=False)
    op.create_table(
        "waiters",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(length=255), nullable=False),
        sa.Column("requested", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "group"),
    )


def downgrade() -> None:
    op.drop_table("waiters")
    op.drop_index(op.f("ix_slices_user"), table_name="slices")
    op.drop_index(op.f("ix_slices_job_id"), table_name="slices")
    op.drop_index(op.f("ix_slices_group"), table_name="slices")
    op.drop_index(op.f("ix_slices_ended"), table_name="slices")
    op.drop_table("slices")
    op.drop_table("reservations")
    op.drop_table("parts")
    op.drop_table("members")
    op.drop_table("leases")
    op.drop_table("instance")
