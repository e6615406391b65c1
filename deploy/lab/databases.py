"""Private database servers for the tests and the benchmarks, from Debian's packages.

Each has its data and its unix socket in the scratch folder, and runs as `nobody` where the lab runs as root,
since PostgreSQL refuses root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.processes import Daemon, LabError
from lab.scratch import Scratch

_USER = ("--reuid=nobody", "--regid=nogroup", "--clear-groups")
_PATHS = "/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin"
_numbers = itertools.count(1)


class DatabaseServer:
    """A running private server. `fresh` makes a new database on it."""

    kind = ""

    def __init__(self, scratch: Scratch, *, durable: bool) -> None:
        self.folder = scratch.root / "dev" / self.kind
        self.folder.mkdir(mode=0o700)
        if os.getuid() == 0:
            shutil.chown(self.folder, "nobody", "nogroup")
        env = scratch.environment()
        _run(self._make(), env)
        argv = [*_as_nobody(), *self._serve(durable)]
        self._daemon = Daemon(self.kind, argv, scratch.root / "log" / f"{self.kind}.log", env, self._answers)

    @staticmethod
    def why_not() -> str:
        """Return why this server cannot be had here; empty: it can."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, for the first time or again, and wait until it answers."""
        for last in (False, False, True):
            self._daemon.spawn()
            try:
                self._daemon.wait_ready(30)
            except LabError:  # what is left of one that was killed may still keep its memory
                if last or self._daemon.running:
                    raise
            else:
                return

    @property
    def running(self) -> bool:
        """True while it lives."""
        return self._daemon.running

    def stop(self) -> None:
        """End it in order."""
        self._daemon.stop()

    def kill9(self) -> None:
        """End it as a crash would."""
        self._daemon.kill9()

    def fresh(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"interleave{next(_numbers)}"
        self._create(name)
        return self.url(name)

    def url(self, name: str) -> str:
        """Return the URL of database *name*."""
        raise NotImplementedError

    def _make(self) -> Sequence[str]:
        raise NotImplementedError

    def _serve(self, durable: bool) -> Sequence[str]:
        raise NotImplementedError

    def _create(self, name: str) -> None:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError


class MariaDB(DatabaseServer):
    """A private `mariadbd`."""

    kind = "mariadb"

    @staticmethod
    def why_not() -> str:
        """Return why there is none here."""
        return _missing("pymysql", "mariadb", ["mariadbd", "mariadb-install-db"], "mariadb-server-core")

    def url(self, name: str) -> str:
        """Return the URL of database *name*."""
        return f"mariadb://root@/{name}?unix_socket={self.socket}"

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / "socket"

    def _make(self) -> Sequence[str]:
        options = ("--auth-root-authentication-method=normal", "--skip-test-db")
        return ("mariadb-install-db", "--no-defaults", f"--datadir={self.folder}/data", *options)

    def _serve(self, durable: bool) -> Sequence[str]:
        place = (f"--datadir={self.folder}/data", f"--socket={self.folder}/socket", "--skip-networking")
        quick = () if durable else ("--innodb-flush-log-at-trx-commit=2", "--skip-innodb-doublewrite")
        return ("mariadbd", "--no-defaults", *place, *quick)

    def _connect(self) -> Any:
        import pymysql

        return contextlib.closing(pymysql.connect(user="root", unix_socket=f"{self.folder}/socket"))

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
            link.settimeout(5)
            link.connect(f"{self.folder}/socket")
            return bool(link.recv(1))  # the server greets first
        return False

    def _create(self, name: str) -> None:
        # A site's default may know neither case nor emoji; ours must not depend on it.
        with self._connect() as link, link.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET latin1 COLLATE latin1_swedish_ci")


class PostgreSQL(DatabaseServer):
    """A private `postgres`."""

    kind = "postgresql"

    @staticmethod
    def why_not() -> str:
        """Return why there is none here."""
        return _missing("psycopg", "postgres", ["postgres", "initdb"], "postgresql")

    def url(self, name: str) -> str:
        """Return the URL of database *name*."""
        return f"postgresql://interleave@/{name}?host={self.folder}"

    def _make(self) -> Sequence[str]:
        options = ("-A", "trust", "-U", "interleave", "--encoding=UTF8", "--locale=C", "--no-sync")
        return (_program("initdb"), "-D", f"{self.folder}/data", *options)

    def _serve(self, durable: bool) -> Sequence[str]:
        place = ("-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}")
        return (_program("postgres"), "-D", f"{self.folder}/data", *place, *(() if durable else ("-F",)))

    def _connect(self) -> Any:
        import psycopg

        return psycopg.connect(
            f"host={self.folder} user=interleave dbname=postgres", autocommit=True, connect_timeout=5
        )

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.Error), self._connect():
            return True
        return False

    def _create(self, name: str) -> None:
        with self._connect() as link:
            link.execute(f"CREATE DATABASE {name}")


SERVERS: dict[str, type[DatabaseServer]] = {server.kind: server for server in (MariaDB, PostgreSQL)}


@contextlib.contextmanager
def serving(kind: str, *, durable: bool = True) -> Iterator[DatabaseServer]:
    """Start a private server of *kind* (`mariadb`, `postgresql`); end and remove it with the context.

    Not *durable*: commits survive the end of the server, not that of the machine. Raises `LabError`.
    """
    reason = SERVERS[kind].why_not()
    if reason:
        raise LabError(f"no private {kind}: {reason}")
    with Scratch() as scratch:
        server = SERVERS[kind](scratch, durable=durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _as_nobody() -> Sequence[str]:
    return ("setpriv", *_USER, "--") if os.getuid() == 0 else ()


def _run(argv: Sequence[str], env: dict[str, str]) -> None:
    done = subprocess.run(
        [*_as_nobody(), *argv], env=env, cwd="/", capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise LabError(f"{argv[0]} failed with exit code {done.returncode}: {done.stdout}{done.stderr}")


def _program(name: str) -> str:
    """Return the path of *name*, in PATH or where Debian keeps the newest PostgreSQL; empty: nowhere."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    path = ":".join([_PATHS, *map(str, reversed(versions))])
    return shutil.which(name, path=path) or ""


def _missing(module: str, extra: str, programs: Sequence[str], package: str) -> str:
    if importlib.util.find_spec(module) is None:
        return f"{module} is not installed; run: pip install 'slurm-interleave[{extra}]'"
    absent = [name for name in programs if not _program(name)]
    return f"{absent[0]} is not installed; it is in Debian's package {package}" if absent else ""
