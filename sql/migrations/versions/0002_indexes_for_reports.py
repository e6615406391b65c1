"""Indexes along which reports page; fewer B-trees for SQLite to write; the row of instance from the start."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

OLD = {name: f"ix_slices_{name}" for name in ("ended", "group", "job_id", "user")}
NEW = {
    "slices_by_job": ["job_id", "epoch"],
    "slices_by_group": ["group", "ended", "epoch"],
    "slices_by_user": ["user", "ended", "epoch"],
    "slices_by_end": ["ended", "epoch"],
}
SMALL = ("leases", "members", "parts", "reservations", "waiters")


def upgrade() -> None:
    for index in OLD.values():
        op.drop_index(index, table_name="slices", if_exists=True)
    dialect = op.get_bind().dialect.name
    if dialect == "sqlite":
        _rebuild(with_rowid=False, epoch=sa.Integer())
    elif dialect == "mariadb":
        op.drop_index("epoch", table_name="leases", if_exists=True)
    else:
        op.drop_constraint("leases_epoch_key", "leases", type_="unique")
    for index, columns in NEW.items():
        op.create_index(index, "slices", columns, if_not_exists=True)
    instance = sa.table("instance", sa.column("id"), sa.column("generation"), sa.column("epoch"))
    if not op.get_bind().scalar(sa.select(sa.func.count()).select_from(instance)):
        op.bulk_insert(instance, [{"id": 1, "generation": 0, "epoch": 0}])


def _rebuild(*, with_rowid: bool, epoch: sa.types.TypeEngine[int]) -> None:
    for table in SMALL:
        with op.batch_alter_table(
            table,
            recreate="always",
            table_kwargs={"sqlite_with_rowid": with_rowid},
            naming_convention={"uq": "uq_%(table_name)s_%(column_0_name)s"},
        ) as batch:
            if table == "leases" and not with_rowid:
                batch.drop_constraint("uq_leases_epoch", type_="unique")
            elif table == "leases":
                batch.create_unique_constraint("uq_leases_epoch", ["epoch"])
    with op.batch_alter_table("slices", recreate="always") as batch:
        batch.alter_column("epoch", type_=epoch, existing_nullable=False, autoincrement=False)


def downgrade() -> None:
    for index in NEW:
        op.drop_index(index, table_name="slices")
    if op.get_bind().dialect.name == "sqlite":
        _rebuild(with_rowid=True, epoch=sa.BigInteger())
    else:
        name = "epoch" if op.get_bind().dialect.name == "mariadb" else "leases_epoch_key"
        op.create_unique_constraint(name, "leases", ["epoch"])
    for column, index in OLD.items():
        op.create_index(index, "slices", [column])
