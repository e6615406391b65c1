"""Databases of all three kinds: SQLite in a file, private servers of the others for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from lab.databases import DatabaseServer, serving
from slurm_interleave.sql.store import Store

KINDS = [
    "sqlite",
    pytest.param("mariadb", marks=pytest.mark.mariadb),
    pytest.param("postgresql", marks=pytest.mark.postgresql),
]


class Servers:
    """Starts a server when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[str, DatabaseServer] = {}

    def get(self, kind: str) -> DatabaseServer:
        if kind not in self._running:
            self._running[kind] = self._stack.enter_context(serving(kind, durable=False))
        return self._running[kind]

    def fresh(self, kind: str, folder: Path) -> str:
        """Return the URL of a new, empty database."""
        return f"sqlite:///{folder}/orchestrator.db" if kind == "sqlite" else self.get(kind).fresh()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    """The URL of a fresh database, of each kind in turn."""
    return servers.fresh(request.param, tmp_path)


@pytest.fixture(params=KINDS[1:])
def server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[DatabaseServer]:
    """A server that the test may kill."""
    server = servers.get(request.param)
    yield server
    if not server.running:
        server.start()


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with closing(Store(database)) as opened:
        yield opened
