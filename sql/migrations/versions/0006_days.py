"""What a turn shared, and sums of turns by member and day."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

LONG = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
OPTIONS: dict[str, Any] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
    "sqlite_with_rowid": False,
}
LAST = (
    *("role", "uid", "user", "account", "partition", "name", "backend", "nodes", "devices", "phase"),
    *("state", "partners", "comment", "epoch"),
)
READ = (*LAST, "job_id", "group", "requested", "granted", "ended", "switched")
COSTS = ("switch_s", "snapshot_s", "restore_s", "switch_bytes")
AT_ONCE = 5000


def upgrade() -> None:
    again = op.get_bind().dialect.name == "mariadb"  # whose DDL is in no transaction; see 0001
    for column in (
        sa.Column("off_s", sa.Double(), nullable=False, server_default="0"),
        sa.Column("share", sa.Double(), nullable=False, server_default="0"),
        sa.Column("partners", LONG, nullable=False, server_default=""),
        sa.Column("comment", sa.String(length=255), nullable=False, server_default=""),
    ):
        op.add_column("slices", column, if_not_exists=again)
    if again:
        op.drop_table("days", if_exists=True)  # from an upgrade that did not end
    days = _create()
    op.create_index("days_by_job", "days", ["job_id"])
    _fill(days)


def _create() -> sa.Table:
    texts = (("role", 128), ("user", 128), ("account", 128), ("partition", 128), ("name", 255))
    waits = ("held_s", "waited_s", "max_wait_s")
    costs = ("switch_s", "snapshot_s", "restore_s", "overhead_s", "switch_bytes")
    devices = ("held_device_s", "waited_device_s", "exclusive_device_s", "occupied_device_s")
    return op.create_table(
        "days",
        sa.Column("day", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job_id", sa.String(length=128), nullable=False),
        sa.Column("group", sa.String(length=128), nullable=False),
        *(sa.Column(n, sa.BigInteger(), nullable=False) for n in ("epoch", "uid")),
        *(sa.Column(n, sa.BigInteger(), nullable=False) for n in ("turns", "switches", "faults")),
        *(sa.Column(n, sa.String(length=size), nullable=False) for n, size in texts),
        sa.Column("backend", sa.String(length=128), nullable=False),
        sa.Column("phase", sa.String(length=255), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("comment", sa.String(length=255), nullable=False),
        *(sa.Column(n, LONG, nullable=False) for n in ("nodes", "devices", "partners")),
        *(sa.Column(n, sa.Double(), nullable=False) for n in ("requested", "granted", "ended")),
        *(sa.Column(n, sa.Double(), nullable=False) for n in (*waits, *costs, *devices)),
        sa.PrimaryKeyConstraint("day", "job_id", "group"),
        **OPTIONS,
    )


def _fill(days: sa.Table) -> None:
    """Add up the slices that there are, whose share of their devices nobody knows."""
    slices = sa.table("slices", *map(sa.column, (*READ, *COSTS)))
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    bind, last = op.get_bind(), -1
    while True:
        query = sa.select(slices).where(slices.c.epoch > last).order_by(slices.c.epoch).limit(AT_ONCE)
        found = bind.execute(query).mappings().all()
        for row in found:
            _add(sums, row)
        if len(found) < AT_ONCE:
            break
        last = found[-1]["epoch"]
    rows = list(sums.values())
    for first in range(0, len(rows), AT_ONCE):
        op.bulk_insert(days, rows[first : first + AT_ONCE])


def _add(sums: dict[tuple[Any, ...], dict[str, Any]], row: Any) -> None:
    local = time.localtime(row["ended"])
    key = (local.tm_year * 10000 + local.tm_mon * 100 + local.tm_mday, row["job_id"], row["group"])
    held, waited = row["ended"] - row["granted"], row["granted"] - row["requested"]
    count = len(row["devices"].split(",")) if row["devices"] else 0
    new = {
        "turns": 1,
        "switches": int(row["switched"]),
        "faults": int(row["state"] == "FAULTED"),
        "held_s": held,
        "waited_s": waited,
        "overhead_s": max(0.0, row["switch_s"] - row["snapshot_s"] - row["restore_s"]),
        **{name: row[name] for name in COSTS},
        "waited_device_s": count * waited,
        **dict.fromkeys(("held_device_s", "exclusive_device_s", "occupied_device_s"), count * held),
    }
    day = sums.setdefault(key, {"day": key[0], "job_id": key[1], "group": key[2], **dict.fromkeys(new, 0)})
    day.update({name: day[name] + value for name, value in new.items()})
    day.update({name: row[name] for name in LAST})
    for name in ("requested", "granted"):
        day[name] = min(day.get(name, row[name]), row[name])
    day["ended"] = max(day.get("ended", row["ended"]), row["ended"])
    day["max_wait_s"] = max(day.get("max_wait_s", waited), waited)


def downgrade() -> None:
    op.drop_index("days_by_job", table_name="days")
    op.drop_table("days")
    for name in ("comment", "partners", "share", "off_s"):
        op.drop_column("slices", name)
