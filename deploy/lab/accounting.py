"""A private slurmdbd, which keeps what it knows in a private MariaDB (`databases.serving("mariadb")`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping

from lab.databases import MariaDB
from lab.processes import Daemon
from lab.slurm_conf import Layout

_SLURMDBD = "slurmdbd"


def why_not() -> str:
    """Return why there can be none here; empty: it can."""
    if _program():
        return MariaDB.why_not()
    return f"{_SLURMDBD} is not installed; run: deploy/lab/install-packages.sh --databases"


def lines(layout: Layout) -> list[str]:
    """Return what slurm.conf says of it."""
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=localhost",
        f"AccountingStoragePort={layout.ports[_SLURMDBD]}",
        f"AccountingStoragePass={layout.munge_socket}",
    ]


def daemon(
    layout: Layout, database: MariaDB, env: Mapping[str, str], listens: Callable[[int], bool]
) -> Daemon:
    """Write slurmdbd.conf and return its daemon. slurmctld needs it at its first start."""
    port, log = layout.ports[_SLURMDBD], layout.log / "slurmdbd.log"
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.munge_socket}",
        "DbdHost": "localhost",
        "DbdPort": port,
        "SlurmUser": "root",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "StorageLoc": "slurm_acct",
        "PidFile": layout.root / "slurmdbd.pid",
        "LogFile": log,
    }
    conf = layout.etc / "slurmdbd.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    conf.chmod(0o600)
    out, env = layout.log / "slurmdbd.out", {**env, "MYSQL_UNIX_PORT": str(database.socket)}
    return Daemon(_SLURMDBD, [_program(), "-D"], out, env, lambda: listens(port), [log])


def _program() -> str:
    return shutil.which(_SLURMDBD, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or ""
