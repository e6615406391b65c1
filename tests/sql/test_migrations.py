"""The migrations make the schema that the code has, from nothing and from an earlier release."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.sql import migrate
from slurm_interleave.sql.admin import Database
from slurm_interleave.sql.engine import open_engine
from slurm_interleave.sql.migrate import HEAD
from slurm_interleave.sql.rows import Lease, Slice
from slurm_interleave.sql.store import Store
from slurm_interleave.sql.tables import metadata
from tests.sql.given import LEASE, SLICE, execute, put

SCRIPTS = Path(migrate.__file__).parent / "migrations"


def to(url: str, revision: str, direction: Any = command.upgrade) -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.set_main_option("path_separator", "os")
    engine = open_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        direction(config, revision)
    engine.dispose()


def upgrade(url: str) -> tuple[str, str]:
    with Database(url, create=True) as opened:
        return opened.upgrade()


def problems(url: str) -> list[str]:
    with Database(url) as opened:
        return opened.problems()


def test_the_newest_migration_is_the_revision_that_the_code_wants() -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.set_main_option("path_separator", "os")

    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_an_upgrade_makes_the_schema_and_a_second_one_does_nothing(database: str) -> None:
    assert upgrade(database) == ("", HEAD)
    assert upgrade(database) == (HEAD, HEAD)
    assert problems(database) == []


def test_the_first_release_s_rows_are_kept(database: str) -> None:
    to(database, "0001")
    engine = open_engine(database)
    with engine.begin() as db:
        db.execute(sa.insert(metadata.tables["instance"]), {"id": 1, "generation": 5, "epoch": 7})
        for table, row in (("slices", SLICE), ("leases", LEASE)):
            there = {column["name"] for column in sa.inspect(db).get_columns(table)}
            known = {name: value for name, value in vars(row).items() if name in there}
            db.execute(sa.insert(metadata.tables[table]), known)
    engine.dispose()

    assert upgrade(database) == ("0001", HEAD)

    assert problems(database) == [
        "job 17 of group grpo: a lease without its member",
        "job 17 of group grpo: its lease, 1, has ended already",
    ]
    with closing(Store(database)) as store:
        assert (store.generation, store.epoch) == (6, 7)
        assert (store.all(Slice), store.all(Lease)) == ([SLICE], [replace(LEASE, driver="")])


def test_a_downgrade_leads_back_and_forth_again(database: str) -> None:
    with closing(Store(database)) as store:
        store.record(put(SLICE), 1)

    to(database, "0001", command.downgrade)
    assert upgrade(database) == ("0001", HEAD)

    assert problems(database) == []
    with closing(Store(database)) as store:
        assert store.all(Slice) == [SLICE]


@pytest.mark.parametrize("database", [pytest.param("mariadb", marks=pytest.mark.mariadb)], indirect=True)
def test_on_mariadb_an_upgrade_that_was_cut_off_is_done_again(database: str) -> None:
    upgrade(database)
    execute(database, "DELETE FROM alembic_version", "DROP TABLE slices", "DROP TABLE waiters")

    assert upgrade(database) == ("", HEAD)

    assert problems(database) == []


def test_upgrades_at_the_same_time_do_not_meet(database: str) -> None:
    outcomes: list[tuple[str, str]] = []
    threads = [threading.Thread(target=lambda: outcomes.append(upgrade(database))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == [("", HEAD), *[(HEAD, HEAD)] * 3]
    assert problems(database) == []


def test_a_database_of_a_newer_release_is_refused_and_left_alone(database: str) -> None:
    upgrade(database)
    execute(database, "UPDATE alembic_version SET version_num = '9999'")

    for open_it in (upgrade, Store):
        with pytest.raises(ConfigError, match="at revision 9999, which this release does not know") as caught:
            open_it(database)
        assert "\n" not in str(caught.value)
    assert problems(database) == [
        f"the database is at revision 9999; this release needs {HEAD}: run interleave db upgrade"
    ]
