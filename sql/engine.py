"""Opens a database: which kinds there are, with which driver each, and what makes a commit of it durable."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from slurm_interleave.client.core.errors import ConfigError, DatabaseFailed

DRIVERS = {"sqlite": "pysqlite", "mariadb": "pymysql", "postgresql": "psycopg"}
_EXTRAS = {"mariadb": "mariadb", "postgresql": "postgres"}
EXAMPLES = (
    "sqlite:////var/lib/interleave/orchestrator.db, mariadb://interleave@/interleave?unix_socket=/run/mysqld/"
    "mysqld.sock, postgresql://interleave@db.example.org/interleave"
)
# A server that is gone without a word is noticed within about half a minute, and the daemon ends.
_LINK: dict[str, dict[str, Any]] = {
    "mariadb": {"connect_timeout": 10, "read_timeout": 30, "write_timeout": 30},
    "postgresql": {
        "connect_timeout": 10,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
    },
}
BUSY_S = 10  # how long SQLite waits for another writer
_LOG_PAGES, _PAGE_BYTES = 4000, 4096
_FEW_PAGES = 64  # of the log on a disk that has less room than
_FREE_LOGS = 8  # so many full ones
_PRAGMAS = (
    f"busy_timeout={BUSY_S * 1000}",
    "synchronous=FULL",  # a commit is on disk before it is answered
    "cache_size=-16000",  # KiB
)


def open_engine(text: str, *, create: bool = True, patient: bool = False) -> sa.Engine:
    """Return an engine for the database that *text*, a URL, names, after one connection to it.

    *create* makes a SQLite file that is not there; *patient* lets one statement last as long as it needs.
    Raises `ConfigError` in one line, without the password.
    """
    url = _parse(text)
    try:
        engine = _make(url, create, patient)
        with engine.connect():
            return engine
    except ImportError:
        extra = _EXTRAS.get(url.get_backend_name(), "orchestrator")
        raise ConfigError(
            f"database {name(url)}: its driver is not installed; run: pip install 'slurm-interleave[{extra}]'"
        ) from None
    except (SQLAlchemyError, OSError, TypeError, ValueError) as error:
        raise ConfigError(f"database {name(url)} cannot be opened: {reason(url, error)}") from error


def may_open(text: str) -> bool:
    """Tell whether this user may open the file that *text*, a URL, names; a server is to be asked itself."""
    url = _parse(text)
    path = Path(url.database or ":memory:")
    if url.get_backend_name() != "sqlite" or str(path) == ":memory:":
        return True
    try:
        path.stat()
    except PermissionError:  # of its folder
        return False
    except OSError:
        return True
    return os.access(path, os.R_OK | os.W_OK)


def name(url: sa.URL) -> str:
    """Return *url* for people: without the driver and the password."""
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def _words(error: BaseException) -> str:
    """Return what *error* says, in one line."""
    while isinstance(error, SQLAlchemyError) and (cause := getattr(error, "orig", None)) is not None:
        error = cause
    return " ".join(str(error).split()) or type(error).__name__


# What can be done about it, by the words that SQLite has for it.
_TODO = {
    "disk is full": "make room on the disk of {path}",
    "Read-only file system": "have it mounted writable: {path}",
    "readonly database": "it, or the file system that it is on, is read-only for this user: {path}",
    "unable to open database file": "this user must be able to read and write {path} and its folder",
    "disk I/O error": "make room on the disk of {path}; if it has some, see the kernel's log for its errors",
}


def reason(url: sa.URL, error: BaseException) -> str:
    """Return what *error* says in one line, and what to do where that is known."""
    said = _words(error)
    known = _TODO.items() if url.get_backend_name() == "sqlite" else ()
    todo = next((todo for part, todo in known if part in said), "")
    return f"{said}: {todo.format(path=url.database)}" if todo else said


def failures(engine: sa.Engine) -> tuple[type[Exception], ...]:
    """Return the errors that the database or its driver raises."""
    driver: Any = engine.dialect.dbapi
    return (SQLAlchemyError, driver.Error, OSError, OverflowError, UnicodeError)


@contextlib.contextmanager
def explained(engine: sa.Engine) -> Iterator[None]:
    """Turn errors of the database into `DatabaseFailed`."""
    try:
        yield
    except failures(engine) as error:
        raise DatabaseFailed(f"database {name(engine.url)}: {reason(engine.url, error)}") from error


def writing(engine: sa.Engine) -> sa.Engine:
    """Return *engine* with transactions that take SQLite's lock for writers from their start."""
    return engine.execution_options(interleave_writes=True)


def fill_log(engine: sa.Engine) -> None:
    """Give SQLite's write-ahead log its full size now, where it has less; nothing for other databases.

    A commit that makes the file longer takes twice as long as one that writes over what was there, as all do
    after the first checkpoint. So more than the log is to hold is written, and rolled back. What a disk has
    left is not taken for that: it is for the rows, and for others.
    """
    path = engine.url.database
    if engine.dialect.name != "sqlite" or path in (None, "", ":memory:"):
        return
    log, size = Path(f"{path}-wal"), _LOG_PAGES * _PAGE_BYTES
    if _log_pages(path) < _LOG_PAGES or (log.exists() and log.stat().st_size >= size):
        return
    with engine.connect() as db:
        driver: Any = db.connection.driver_connection
        driver.execute("PRAGMA cache_size=50")  # what does not fit is written
        try:
            driver.execute("BEGIN IMMEDIATE")
            driver.execute("CREATE TABLE filling (n BLOB)")
            driver.execute("INSERT INTO filling VALUES (zeroblob(?))", (size + 100 * _PAGE_BYTES,))
        except sqlite3.OperationalError:  # as on a disk that has filled up meanwhile: it will do without
            pass
        finally:
            if driver.in_transaction:
                driver.execute("ROLLBACK")
        db.invalidate()


def _log_pages(path: str) -> int:
    """Return how long the log may become before it is worked into the file, which makes one commit slow."""
    log, size = Path(f"{path}-wal"), _LOG_PAGES * _PAGE_BYTES
    if log.exists() and log.stat().st_size >= size:
        return _LOG_PAGES
    return _LOG_PAGES if shutil.disk_usage(log.parent).free >= _FREE_LOGS * size else _FEW_PAGES


def _parse(text: str) -> sa.URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        shown = re.sub(r":[^:@]*@", ":***@", text)
        raise ConfigError(f"database = {shown!r} is no URL; examples are {EXAMPLES}") from None
    kind, _, driver = url.drivername.partition("+")
    if kind not in DRIVERS or driver not in ("", DRIVERS[kind]):
        known = ", ".join(f"{kind}://... (or {kind}+{driver}://...)" for kind, driver in DRIVERS.items())
        raise ConfigError(f"database = {name(url)!r}: {url.drivername} is not known; known are {known}")
    return url.set(drivername=f"{kind}+{DRIVERS[kind]}")


def _make(url: sa.URL, create: bool, patient: bool) -> sa.Engine:
    kind = url.get_backend_name()
    if kind == "sqlite":
        return _sqlite(url, create)
    link = {key: value for key, value in _LINK[kind].items() if key not in url.query}
    if kind == "mariadb":
        from pymysql.constants import CLIENT

        # One message for a whole batch; an UPDATE counts what it found, not what it changed.
        link["client_flag"] = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS
        link["init_command"] = "SET SESSION sql_mode = 'STRICT_ALL_TABLES'"
    if patient:
        link.pop("read_timeout", None)
    return sa.create_engine(url, connect_args=link, pool_pre_ping=True, paramstyle="format")


def _sqlite(url: sa.URL, create: bool) -> sa.Engine:
    options: dict[str, Any] = {}
    if url.database in (None, "", ":memory:"):
        options = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    else:
        path = Path(url.database or "")
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
        elif not path.exists():
            raise FileNotFoundError("no such file; interleaved makes it, or: interleave db upgrade")
    pages = _LOG_PAGES if options else _log_pages(str(url.database))
    engine = sa.create_engine(url, **options)
    sa.event.listen(engine, "connect", partial(_prepare_sqlite, pages))
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(log_pages: int, connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says, DDL included
    for pragma in (*_PRAGMAS, f"wal_autocheckpoint={log_pages}"):
        connection.execute(f"PRAGMA {pragma}")
    _write_ahead(connection)


def _write_ahead(connection: Any) -> None:
    """Turn on the mode in which readers do not stop the writer.

    The busy timeout does not hold for this change, which is made once in the life of a file.
    """
    deadline = time.monotonic() + BUSY_S
    while time.monotonic() < deadline:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):  # to wait makes no room on a full disk
                raise
        time.sleep(0.01)
    connection.execute("PRAGMA journal_mode=WAL")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("interleave_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
