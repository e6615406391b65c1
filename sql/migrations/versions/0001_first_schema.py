"""First schema."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# MariaDB has no DDL in transactions: what a cut-off run made is skipped when it is done again.
OPTIONS: dict[str, Any] = {
    "if_not_exists": True,
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
TEXT = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mariadb")


def upgrade() -> None:
    op.create_table(
        "instance",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        **OPTIONS,
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
        **OPTIONS,
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
        sa.Column("nodes", TEXT, nullable=False),
        sa.Column("fault", TEXT, nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "group"),
        **OPTIONS,
    )
    op.create_table(
        "parts",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        sa.Column("node", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.String(length=128), nullable=False),
        sa.Column("devices", TEXT, nullable=False),
        sa.Column("context", sa.String(length=16), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("operation", sa.String(length=128), nullable=False),
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "group", "node"),
        **OPTIONS,
    )
    op.create_table(
        "reservations",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        sa.Column("role", sa.String(length=128), nullable=False),
        sa.Column("nodes", TEXT, nullable=False),
        sa.Column("devices", TEXT, nullable=False),
        sa.Column("lane", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
        **OPTIONS,
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
        sa.Column("nodes", TEXT, nullable=False),
        sa.Column("devices", TEXT, nullable=False),
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
        **OPTIONS,
    )
    op.create_index(op.f("ix_slices_ended"), "slices", ["ended"], unique=False, if_not_exists=True)
    op.create_index(op.f("ix_slices_group"), "slices", ["group"], unique=False, if_not_exists=True)
    op.create_index(op.f("ix_slices_job_id"), "slices", ["job_id"], unique=False, if_not_exists=True)
    op.create_index(op.f("ix_slices_user"), "slices", ["user"], unique=False, if_not_exists=True)
    op.create_table(
        "waiters",
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(length=255), nullable=False),
        sa.Column("requested", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "group"),
        **OPTIONS,
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
