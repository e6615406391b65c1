"""The grants that README.md names are enough."""

from __future__ import annotations

from contextlib import closing

import pytest

from slurm_interleave.client.core.errors import DatabaseFailed
from slurm_interleave.sql.admin import Database
from slurm_interleave.sql.migrate import HEAD
from slurm_interleave.sql.rows import Slice
from slurm_interleave.sql.store import Store
from tests.sql.conftest import Servers
from tests.sql.given import EACH, WAITER, drop, execute, put

DAILY, UPGRADES = "SELECT, INSERT, UPDATE, DELETE", "CREATE, ALTER, DROP, INDEX"


@pytest.mark.mariadb
def test_on_mariadb_the_daily_grants_do_for_all_but_upgrades(servers: Servers) -> None:
    root = servers.get("mariadb").fresh()
    name = root.partition("/interleave")[2].partition("?")[0]
    user, on = f"daily{name}@localhost", f"interleave{name}.*"
    execute(root, f"CREATE USER {user} IDENTIFIED BY 'secret'", f"GRANT {DAILY} ON {on} TO {user}")
    url = root.replace("root@", f"daily{name}:secret@")

    with pytest.raises(DatabaseFailed, match="command denied"):
        Store(url)
    execute(root, f"GRANT {UPGRADES} ON {on} TO {user}")
    with Database(url) as opened:
        assert opened.upgrade() == ("", HEAD)
    execute(root, f"REVOKE {UPGRADES} ON {on} FROM {user}")

    with closing(Store(url)) as store:
        store.record(put(*EACH), 1)
        store.record(drop(WAITER), 1)
        assert sum(store.prune(1e12)) == 1
        with Database(url) as opened:
            assert opened.problems() == []
        assert store.all(Slice) == []


@pytest.mark.postgresql
def test_on_postgresql_the_owner_of_the_database_may_do_all(servers: Servers) -> None:
    root = servers.get("postgresql").fresh()
    name = root.partition("@/")[2].partition("?")[0]
    execute(root, f"CREATE ROLE owner_{name} LOGIN", f"ALTER DATABASE {name} OWNER TO owner_{name}")

    with closing(Store(root.replace("interleave@", f"owner_{name}@"))) as store:
        store.record(put(*EACH), 1)
        assert sum(store.prune(1e12)) == 1
