"""The connection that writes: a batch in one transaction, in as few messages as the protocol allows."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from slurm_interleave.sql.engine import BUSY_S
from slurm_interleave.sql.statements import Statement

# MariaDB takes a message of 16 MiB; rows have some hundred bytes.
_STATEMENTS_A_MESSAGE = 500
Send = Callable[[Any, Statement, Sequence[Statement]], bool]


class Locked(Exception):
    """Another writer has SQLite's lock. Nothing was done."""


class Writer:
    """One connection, kept. Not for more than one thread at a time."""

    def __init__(self, engine: sa.Engine) -> None:
        connection = engine.connect()
        if engine.dialect.name != "sqlite":  # SQLite's are without automatic transactions anyway
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        self._connection = connection
        self._driver: Any = connection.connection.driver_connection
        self._send = _SEND[engine.dialect.name]
        self._may_wait = True

    def write(self, fence: Statement, rest: Sequence[Statement], *, may_wait: bool = True) -> bool:
        """Do *fence* and *rest* in one transaction; return False, nothing done, if *fence* counts no row.

        Unless it *may_wait*, it raises `Locked` where another program is writing to SQLite's file. Raises the
        driver's errors too; then the connection is gone, and it is not known whether the batch counts.
        """
        try:
            if may_wait is not self._may_wait and self._send is _send_sqlite:
                self._driver.execute(f"PRAGMA busy_timeout={BUSY_S * 1000 if may_wait else 0}")
                self._may_wait = may_wait
            return self._send(self._driver, fence, rest)
        except Locked as locked:
            if may_wait:
                self._connection.invalidate()
                raise sqlite3.OperationalError(str(locked)) from locked
            raise
        except BaseException:
            self._connection.invalidate()
            raise

    def close(self) -> None:
        """Give the connection up."""
        with contextlib.suppress(sa.exc.SQLAlchemyError):
            self._connection.close()


def _send_sqlite(connection: Any, fence: Statement, rest: Sequence[Statement]) -> bool:
    execute = connection.execute
    try:
        execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if str(error) == "database is locked":  # Python 3.10 has no code of it
            raise Locked(str(error)) from error
        raise
    kept: bool = execute(*fence).rowcount == 1
    if kept:
        for statement in rest:
            execute(*statement)
    execute("COMMIT" if kept else "ROLLBACK")
    return kept


def _send_postgresql(connection: Any, fence: Statement, rest: Sequence[Statement]) -> bool:
    try:
        with connection.pipeline():
            # Under READ COMMITTED the fence sees what another instance has committed while it waited.
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            cursor = connection.cursor()
            cursor.execute(_OR_FAIL.format(fence.sql), fence.values)
            for statement in rest:
                cursor.execute(*statement)
            connection.execute("COMMIT")
    except connection.Error as error:
        if error.sqlstate != _DIVIDED_BY_ZERO:
            raise
        connection.execute("ROLLBACK")
        return False
    return True


def _send_mariadb(connection: Any, fence: Statement, rest: Sequence[Statement]) -> bool:
    statements = (Statement("BEGIN", ()), fence, _OR_SIGNAL, *rest, Statement("COMMIT", ()))
    with connection.cursor() as cursor:
        try:
            for first in range(0, len(statements), _STATEMENTS_A_MESSAGE):
                some = statements[first : first + _STATEMENTS_A_MESSAGE]
                cursor.execute("; ".join(s.sql for s in some), [value for s in some for value in s.values])
                while cursor.nextset():
                    pass
        except connection.Error as error:
            if error.args[0] != _SIGNALLED:
                raise
            cursor.execute("ROLLBACK")
            return False
    return True


# A fence that counts no row fails, and with it all that was sent behind it, the COMMIT too.
_OR_FAIL = "WITH moved AS ({} RETURNING 1) SELECT 1 / count(*) FROM moved"
_DIVIDED_BY_ZERO = "22012"
_OR_SIGNAL = Statement("IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000'; END IF", ())
_SIGNALLED = 1644
_SEND: dict[str, Send] = {
    "sqlite": _send_sqlite,
    "mariadb": _send_mariadb,
    "postgresql": _send_postgresql,
}
