"""Brings a database to this release's schema with Alembic, one caller at a time."""

from __future__ import annotations

import importlib.resources
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from slurm_interleave.client.core.errors import ConfigError
from slurm_interleave.sql.engine import name, writing

# A test compares it with the newest file in migrations/versions. It is written here since Alembic, and to ask
# it, takes longer than all else that a start on an up-to-date database does.
HEAD = "0010"
_LOCK_S = 60


def revision(connection: sa.Connection) -> str:
    """Return the revision of the database; empty: it has no tables of ours."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return ""
    version = sa.table("alembic_version", sa.column("version_num"))
    return str(connection.scalar(sa.select(version.c.version_num)) or "")


def upgrade(engine: sa.Engine) -> tuple[str, str]:
    """Run the migrations that the database has not seen yet; return its revision before and after.

    Where DDL is part of transactions (SQLite, PostgreSQL) all or nothing happens; on MariaDB a migration that
    was cut off is done again. Raises `ConfigError` for a database of a newer release.
    """
    with _alone(engine), writing(engine).begin() as connection:
        before = revision(connection)
        if before != HEAD:
            _run(connection, before)
        return before, HEAD


def _run(connection: sa.Connection, before: str) -> None:
    from alembic import command
    from alembic.config import Config

    versions = importlib.resources.files("slurm_interleave.sql") / "migrations"
    known = {file.name.partition("_")[0] for file in (versions / "versions").iterdir()}
    if before and before not in known:
        raise ConfigError(
            f"database {name(connection.engine.url)} is at revision {before}, which this "
            f"release does not know (its own is {HEAD}); a newer release made it: install that one again"
        )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(versions))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


@contextmanager
def _alone(engine: sa.Engine) -> Iterator[None]:
    """Keep other upgrades out, until ours is committed; SQLite's transaction does so by itself."""
    if engine.dialect.name == "sqlite":
        yield
        return
    take, give = _LOCKS[engine.dialect.name]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as guard:
        if guard.scalar(take) in (0, None):
            raise ConfigError(
                f"database {name(engine.url)}: another upgrade has lasted for {_LOCK_S} s; try later"
            )
        try:
            yield
        finally:
            guard.execute(give)


_LOCK = 0x696C7631
_NAMED = sa.func.concat("slurm_interleave.", sa.func.left(sa.func.database(), 40))
_LOCKS = {
    "mariadb": (sa.select(sa.func.get_lock(_NAMED, _LOCK_S)), sa.select(sa.func.release_lock(_NAMED))),
    "postgresql": (
        sa.select(sa.func.pg_advisory_lock(_LOCK)),
        sa.select(sa.func.pg_advisory_unlock(_LOCK)),
    ),
}
